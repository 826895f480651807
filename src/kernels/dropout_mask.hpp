#pragma once

// Which elements dropout keeps: a function of (seed, sample, position, site) and of the place in the row, so that the
// mask is the same however a step is split over ranks and micro-batches, and in forward and backward. Four neighbours
// share a block of random numbers. Included by k_impl.hpp files only.

#include "core/random.hpp"
#include "core/types.hpp"
#include "kernels/common/row.hpp"
#include "kernels/dropout.hpp"

namespace trainstone::Impl {

/// One row's mask, in blocks of four elements.
struct DropoutRow {
  std::uint64_t seed;
  std::uint64_t index; ///< but for the block
  std::uint64_t place;
  std::uint32_t threshold; ///< words from here on keep their element
  float scale;             ///< of what is kept
  Index first = 0;         ///< element of the whole row

  /// Of the elements [4 block, 4 block + 4).
  KOKKOS_INLINE_FUNCTION RandomBlock random(Index block) const {
    return random_block(seed, RandomStream::dropout, index | static_cast<std::uint32_t>(block), place);
  }
  KOKKOS_INLINE_FUNCTION bool keeps(std::uint32_t word) const { return word >= threshold; }
};

/// body(i, whether element i from the first one on is kept) for i in [0, count): a block of random numbers for four
/// elements of the whole row.
template <class Body>
KOKKOS_INLINE_FUNCTION void dropout_for(Team const& team, DropoutRow const& row, Index count, Body const& body) {
  Index const before = row.first / 4, ahead = row.first % 4;
  row_for(team, divide_up(ahead + count, 4), [&](Index block) {
    RandomBlock const random = row.random(before + block);
    for (Index j = 0; j < 4; ++j) {
      Index const i = 4 * block + j - ahead;
      if (0 <= i && i < count) body(i, row.keeps(random.words[j]));
    }
  });
}

/// The rows of a micro-batch at one site, each of a position below `positions` and a head below `heads`. Plain numbers:
/// kernels hold it by value.
struct DropoutRows {
  std::uint64_t seed, first_sample;
  std::uint32_t site, threshold;
  float scale;
  Index first_head, first_position, first_feature;

  /// \throws Error   if a number of the dropout is out of its range, or there are more positions or heads than it knows
  DropoutRows(Dropout const& dropout, Index positions, Index heads = 1);

  /// Of the t-th position of sequence b that is here. A head's keys have blocks of their own.
  KOKKOS_INLINE_FUNCTION DropoutRow row(Index b, Index t, Index head = 0) const {
    std::uint64_t const sample = first_sample + static_cast<std::uint64_t>(b);
    // position: 20 bits, sample: 44, block: 18 bits (a head's keys are positions) of 32, head: 14, site: 24
    std::uint64_t const upper = static_cast<std::uint64_t>(first_position + t) | sample >> 32 << 20;
    return {seed,
            upper << 32 | static_cast<std::uint64_t>(first_head + head) << 18,
            site | (sample & 0xFFFFFFFFU) << 24,
            threshold,
            scale,
            first_feature};
  }
};

} // namespace trainstone::Impl
