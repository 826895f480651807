#pragma once

// Counter-based random numbers: Philox4x32-10 of the Random123 library, so a value depends on (seed, stream, index)
// and on nothing that ran before: the same on every rank, thread and device. Holds no state.
// Source: Parallel Random Numbers: As Easy as 1, 2, 3 (SC11).

#include <Kokkos_Core.hpp>

#include <Random123/philox.h>

#include <cstdint>

namespace trainstone {

/// Independent uses of one seed; the values are part of the results' definition and never change.
enum class RandomStream : std::uint32_t {
  initial_values = 1,
  data_order = 2,
  synthetic_data = 3,
  tests = 4,
  dropout = 5,
  stragglers = 6
};

struct RandomBlock {
  std::uint32_t words[4];
};

/// 128 random bits for (seed, stream, index, place): the same index at another place gives others.
/// \param[in] place   its low 24 bits and the 32 above them
KOKKOS_INLINE_FUNCTION RandomBlock random_block(std::uint64_t seed, RandomStream stream, std::uint64_t index,
                                                std::uint64_t place = 0) {
  std::uint32_t const use = static_cast<std::uint32_t>(stream) | static_cast<std::uint32_t>(place & 0xFFFFFFU) << 8;
  r123::Philox4x32::ctr_type const counter = {{static_cast<std::uint32_t>(index),
                                               static_cast<std::uint32_t>(index >> 32), use,
                                               static_cast<std::uint32_t>(place >> 24)}};
  r123::Philox4x32::key_type const key = {{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}};
  r123::Philox4x32::ctr_type const result = r123::Philox4x32()(counter, key);
  return {{result[0], result[1], result[2], result[3]}};
}

/// Uniform in (0, 1]: never 0, so that its logarithm exists.
KOKKOS_INLINE_FUNCTION double uniform(std::uint32_t word) { return (static_cast<double>(word) + 1.0) * 0x1p-32; }

/// Four standard normal numbers from block `block`, by the Box-Muller transform in fp64: words 0 and 1 give the first
/// two (cosine, sine), words 2 and 3 the others.
struct NormalBlock {
  double values[4];
};

KOKKOS_INLINE_FUNCTION NormalBlock normal_block(std::uint64_t seed, RandomStream stream, std::uint64_t block) {
  RandomBlock const random = random_block(seed, stream, block);
  NormalBlock result;
  for (int pair = 0; pair < 2; ++pair) {
    double const radius = Kokkos::sqrt(-2.0 * Kokkos::log(uniform(random.words[2 * pair])));
    double const angle = 6.283185307179586 * uniform(random.words[2 * pair + 1]);
    result.values[2 * pair] = radius * Kokkos::cos(angle);
    result.values[2 * pair + 1] = radius * Kokkos::sin(angle);
  }
  return result;
}

/// Standard normal number `index`: element index mod 4 of block index / 4.
KOKKOS_INLINE_FUNCTION double normal(std::uint64_t seed, RandomStream stream, std::uint64_t index) {
  return normal_block(seed, stream, index / 4).values[index % 4];
}

} // namespace trainstone
