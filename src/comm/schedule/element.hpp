#pragma once

// What collectives can carry and how they combine it: the run-time names of element types and operations.

#include "core/storage.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace trainstone {

enum class ElementType { float32, float64, int32, int64, bfloat16, float16 };
constexpr ElementType element_type_of(Storage storage) {
  switch (storage) {
  case Storage::fp32: return ElementType::float32;
  case Storage::bf16: return ElementType::bfloat16;
  case Storage::fp16: break;
  }
  return ElementType::float16;
}

enum class Operation { sum, max, min };

std::size_t size_of(ElementType type);
std::string_view to_string(ElementType type);
std::string_view to_string(Operation operation);

/// The element type that T is; fails to compile where collectives cannot carry T.
template <class T>
constexpr ElementType element_type_of() {
  if constexpr (std::is_same_v<T, float>) {
    return ElementType::float32;
  } else if constexpr (std::is_same_v<T, double>) {
    return ElementType::float64;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return ElementType::int32;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return ElementType::int64;
  } else if constexpr (std::is_same_v<T, bf16>) {
    return ElementType::bfloat16;
  } else {
    static_assert(std::is_same_v<T, fp16>, "collectives carry float, double, int32, int64, bf16 and fp16");
    return ElementType::float16;
  }
}

} // namespace trainstone
