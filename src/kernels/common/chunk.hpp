#pragma once

// Sixteen bytes of a row, as devices read and write them at once. Included by files of kernels' bodies only.

#include "kernels/common/row.hpp"

#include <cstdint>
#include <initializer_list>

namespace trainstone::Impl {

/// Two 16-bit values in a word, the first one in the lower half: half the registers of values apart.
template <class T>
struct alignas(16) Chunk {
  static_assert(sizeof(T) == 2);
  static constexpr int size = 8;
  std::uint32_t words[4];

  KOKKOS_FORCEINLINE_FUNCTION float operator[](int i) const {
    return to_float(T{static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16))});
  }
  /// Of value(0), value(1), ...
  template <class Value>
  static KOKKOS_FORCEINLINE_FUNCTION Chunk of(Value const& value) {
    Chunk chunk;
    TRAINSTONE_ALL_AT_ONCE
    for (int i = 0; i < 4; ++i) {
      std::uint32_t const low = from_float<T>(value(2 * i)).bits, high = from_float<T>(value(2 * i + 1)).bits;
      chunk.words[i] = low | high << 16;
    }
    return chunk;
  }
};

template <>
struct alignas(16) Chunk<float> {
  static constexpr int size = 4;
  float values[4];

  KOKKOS_FORCEINLINE_FUNCTION float operator[](int i) const { return values[i]; }
  template <class Value>
  static KOKKOS_FORCEINLINE_FUNCTION Chunk of(Value const& value) {
    Chunk chunk;
    TRAINSTONE_ALL_AT_ONCE
    for (int i = 0; i < size; ++i) chunk.values[i] = value(i);
    return chunk;
  }
};

/// Whether all rows of these matrices, of so many elements, begin where a chunk can.
template <class T>
bool lie_in_chunks(std::int64_t columns, std::initializer_list<void const*> matrices) {
  bool all = columns % Chunk<T>::size == 0;
  for (void const* const data : matrices) all = all && reinterpret_cast<std::uintptr_t>(data) % sizeof(Chunk<T>) == 0;
  return all;
}

} // namespace trainstone::Impl
