#pragma once

// The run-time names of the types that parameters, activations and gradients are stored in. Without Kokkos, so that
// decks and plans read it cheaply; the types themselves are in core/types.hpp.

#include <cstddef>
#include <string_view>
#include <type_traits>

namespace trainstone {

struct bf16; // core/types.hpp
struct fp16;

enum class Storage { fp32, bf16, fp16 };

constexpr std::size_t bytes_per_value(Storage storage) { return storage == Storage::fp32 ? 4 : 2; }

constexpr std::string_view to_string(Storage storage) {
  switch (storage) {
  case Storage::fp32: return "fp32";
  case Storage::bf16: return "bf16";
  case Storage::fp16: return "fp16";
  }
  return "";
}

/// The name of T; fails to compile where T is no storage type.
template <class T>
constexpr Storage storage_of() {
  if constexpr (std::is_same_v<T, float>) {
    return Storage::fp32;
  } else if constexpr (std::is_same_v<T, struct bf16>) {
    return Storage::bf16;
  } else {
    static_assert(std::is_same_v<T, struct fp16>, "values are stored as float, bf16 or fp16");
    return Storage::fp16;
  }
}

} // namespace trainstone
