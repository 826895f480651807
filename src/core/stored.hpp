#pragma once

// Views whose element type is known at run time. Interfaces use them because the configuration decides the storage
// type. They are made from typed Views, and code that has found out the type turns them back. They own no memory.

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/memory.hpp"
#include "core/storage.hpp"
#include "core/types.hpp"
#include "core/views.hpp"

#include <cstddef>
#include <span>
#include <type_traits>

namespace trainstone {

/// body.operator()<T>() with the type that `storage` names; all three must return the same type.
template <class Body>
auto with_storage(Storage storage, Body const& body) {
  switch (storage) {
  case Storage::fp32: return body.template operator()<float>();
  case Storage::bf16: return body.template operator()<bf16>();
  case Storage::fp16: return body.template operator()<fp16>();
  }
  throw Error(fmt::format("no storage type {}", static_cast<int>(storage)));
}

namespace Impl {

template <class T, class Void>
using ElementOf = std::conditional_t<std::is_const_v<Void>, T const, T>;

template <class T>
void require_storage(Storage storage) {
  TRAINSTONE_REQUIRE(storage == storage_of<T>(), "values are stored as {}, not as {}", to_string(storage),
                     to_string(storage_of<T>()));
}

/// Void is void, or void const for elements that are only read.
template <class Void>
struct StoredVector {
  Void* data = nullptr;
  Index size = 0;
  Storage storage = Storage::fp32;

  StoredVector() = default;
  template <class T>
  StoredVector(Vector<T> const& view)
      : data(view.data()), size(static_cast<Index>(view.extent(0))), storage(storage_of<std::remove_const_t<T>>()) {}
  template <class Other>
    requires(std::is_void_v<Other> && std::is_const_v<Void> && !std::is_const_v<Other>)
  StoredVector(StoredVector<Other> const& other) : data(other.data), size(other.size), storage(other.storage) {}

  /// Elements [begin, begin + count).
  StoredVector part(Index begin, Index count) const {
    StoredVector part = *this;
    part.data = static_cast<ElementOf<char, Void>*>(data) + begin * static_cast<Index>(bytes_per_value(storage));
    part.size = count;
    return part;
  }

  /// \throws Error if the elements are of another type
  template <class T>
  Vector<ElementOf<T, Void>> as() const {
    require_storage<T>(storage);
    return Vector<ElementOf<T, Void>>(static_cast<ElementOf<T, Void>*>(data), static_cast<std::size_t>(size));
  }
};

template <class Void>
struct StoredMatrix {
  Void* data = nullptr;
  Index rows = 0, columns = 0;
  Storage storage = Storage::fp32;

  /// Row after row.
  StoredVector<Void> flat() const {
    StoredVector<Void> vector;
    vector.data = data;
    vector.size = rows * columns;
    vector.storage = storage;
    return vector;
  }

  StoredMatrix() = default;
  template <class T>
  StoredMatrix(Matrix<T> const& view)
      : data(view.data()),
        rows(static_cast<Index>(view.extent(0))),
        columns(static_cast<Index>(view.extent(1))),
        storage(storage_of<std::remove_const_t<T>>()) {}

  /// \throws Error if the elements are of another type
  template <class T>
  Matrix<ElementOf<T, Void>> as() const {
    require_storage<T>(storage);
    return Matrix<ElementOf<T, Void>>(static_cast<ElementOf<T, Void>*>(data), static_cast<std::size_t>(rows),
                                      static_cast<std::size_t>(columns));
  }
};

} // namespace Impl

using StoredVector = Impl::StoredVector<void>;
using ConstStoredVector = Impl::StoredVector<void const>;
using StoredMatrix = Impl::StoredMatrix<void>;
using ConstStoredMatrix = Impl::StoredMatrix<void const>;

/// The memory of a vector.
inline std::span<std::byte> bytes_of(StoredVector const& vector) {
  return {static_cast<std::byte*>(vector.data),
          static_cast<std::size_t>(vector.size) * bytes_per_value(vector.storage)};
}

/// What planned(storage, label, count) plans, cut out of an arena: like Arena::vector<T>().
inline StoredVector take_vector(Arena& arena, Storage storage, std::string_view label, Index count) {
  return with_storage(storage, [&]<class T>() { return StoredVector(arena.vector<T>(label, count)); });
}

} // namespace trainstone
