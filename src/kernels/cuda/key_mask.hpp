#pragma once

// Which weights of a fragment of scores dropout keeps: the masks of kernels/dropout_mask.hpp, whose blocks of four keys
// lie across the lanes of a fragment. Each lane computes a block and hands its words around. Included by the kernels of
// this folder only.

#include "kernels/cuda/attention_rows.hpp"
#include "kernels/dropout_mask.hpp"

namespace trainstone::Cuda {

struct KeyMask {
  static constexpr bool drops = true;

  trainstone::Impl::DropoutRows rows;
  float scale; ///< of what is kept

  /// Rows are queries: of this lane `query` and `query` + 8. Columns are the 8 keys from `first_key` on. Two lanes that
  /// are beside each other share the blocks of both rows.
  template <class Lane>
  TRAINSTONE_LANE void kept(Lane& lane, int b, int h, int query, int first_key, bool (&kept)[4]) const {
    int const column = lane.thread() % 4;
    bool const is_right = column % 2 == 1; // computes the lower row
    trainstone::Impl::DropoutRow const row = rows.row(b, query + (is_right ? 8 : 0), h);
    RandomBlock const block = row.random(first_key / 4 + column / 2);
    std::uint32_t const given[2] = {is_right ? block.words[0] : block.words[2],
                                    is_right ? block.words[1] : block.words[3]},
                        own[2] = {is_right ? block.words[2] : block.words[0],
                                  is_right ? block.words[3] : block.words[1]};
    TRAINSTONE_UNROLLED
    for (int i = 0; i < 2; ++i) {
      std::uint32_t const taken = lane.from_lane_beside(given[i], 1);
      kept[i] = row.keeps(is_right ? taken : own[i]);
      kept[2 + i] = row.keeps(is_right ? own[i] : taken);
    }
  }

  /// Rows are keys: of this lane `key` and `key` + 8. Columns are the 8 queries from `first_query` on. Four lanes below
  /// each other have the keys of a block, for two queries each of two blocks.
  template <class Lane>
  TRAINSTONE_LANE void kept_of_keys(Lane& lane, int b, int h, int first_query, int key, bool (&kept)[4]) const {
    int const place = lane.thread() % 32 / 4 % 4; // of the key in its block, and which of the four blocks
    int const query = first_query + lane.thread() % 4 * 2 + place % 2;
    trainstone::Impl::DropoutRow const row = rows.row(b, query, h);
    RandomBlock const block = row.random(key / 4 + place / 2 * 2);
    TRAINSTONE_UNROLLED
    for (int away = 0; away < 4; ++away) {
      std::uint32_t const given = word_of(block, place ^ away);
      std::uint32_t const taken = away == 0 ? given : lane.from_lane_beside(given, 4 * away);
      TRAINSTONE_UNROLLED
      for (int i = 0; i < 4; ++i) // no index that is known late
        if (i == (place ^ away)) kept[i] = row.keeps(taken);
    }
  }

private:
  static TRAINSTONE_LANE std::uint32_t word_of(RandomBlock const& block, int number) {
    std::uint32_t const low = number % 2 == 0 ? block.words[0] : block.words[1],
                        high = number % 2 == 0 ? block.words[2] : block.words[3];
    return number < 2 ? low : high;
  }
};

} // namespace trainstone::Cuda
