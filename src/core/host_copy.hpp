#pragma once

// Copies between Views and host memory, complete on return: they fence the given instance, with the caller's reason.

#include "core/stored.hpp"
#include "core/views.hpp"

#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace trainstone {

namespace Impl {
template <class T>
using HostView = Kokkos::View<T*, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
}

/// out (n) = view (n)
template <class T>
void copy_to_host(ExecutionSpace const& exec, Vector<T> view, std::span<std::remove_const_t<T>> out,
                  std::string const& reason) {
  Kokkos::deep_copy(exec, Impl::HostView<std::remove_const_t<T>>(out.data(), out.size()), view);
  exec.fence(reason);
}

template <class T>
std::vector<std::remove_const_t<T>> copy_to_host(ExecutionSpace const& exec, Vector<T> view,
                                                 std::string const& reason) {
  std::vector<std::remove_const_t<T>> values(view.extent(0));
  copy_to_host<T>(exec, view, std::span(values), reason);
  return values;
}

/// As fp32, whatever they are stored in.
inline std::vector<float> copy_to_host(ExecutionSpace const& exec, ConstStoredVector vector,
                                       std::string const& reason) {
  return with_storage(vector.storage, [&]<class T>() {
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(vector.size));
    for (T const value : copy_to_host<T const>(exec, vector.as<T>(), reason)) values.push_back(to_float(value));
    return values;
  });
}

/// view (n) = in (n)
template <class T>
void copy_from_host(ExecutionSpace const& exec, std::span<T const> in, Vector<T> view, std::string const& reason) {
  Kokkos::deep_copy(exec, view, Impl::HostView<T const>(in.data(), in.size()));
  exec.fence(reason);
}

} // namespace trainstone
