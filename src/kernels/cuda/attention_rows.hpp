#pragma once

// Causal attention on tensor cores: where rows lie, and what a lane knows of a tile of scores. Included by the kernels
// of this folder only.

#include "kernels/cuda/tile_fragments.hpp"

#include <math.h>

namespace trainstone::Cuda {

struct Bf16 {
  static constexpr bool is_bf16 = true;
};
struct Fp16 {
  static constexpr bool is_bf16 = false;
};

/// Sizes, and where one head's rows begin, as kernels/common/attention_shape.hpp has them.
struct AttentionSizes {
  int batch, sequence, heads, head_size;
  float scale; ///< of scores

  TRAINSTONE_LANE int channels() const { return heads * head_size; }
  TRAINSTONE_LANE int qkv_row_bytes() const { return 6 * channels(); }
  TRAINSTONE_LANE int out_row_bytes() const { return 2 * channels(); }
  /// Of row t of head h of sample b: its queries; keys and values lie 2 channels() bytes apart.
  TRAINSTONE_LANE std::int64_t qkv_place(int b, int h, int t) const {
    return (std::int64_t{b} * sequence + t) * qkv_row_bytes() + 2 * h * head_size;
  }
  TRAINSTONE_LANE std::int64_t out_place(int b, int h, int t) const {
    return (std::int64_t{b} * sequence + t) * out_row_bytes() + 2 * h * head_size;
  }
  /// In a vector with one value per query.
  TRAINSTONE_LANE std::int64_t query_place(int b, int h, int t) const {
    return (std::int64_t{b} * heads + h) * sequence + t;
  }
};

inline constexpr float infinity = __builtin_huge_valf(), log2_of_e = 1.4426950408889634F,
                       log_of_2 = 0.6931471805599453F;

TRAINSTONE_LANE float larger(float x, float y) { return fmaxf(x, y); }

/// The sum over a row of fragments, of which each of four lanes beside each other has a part.
template <class Lane>
TRAINSTONE_LANE float sum_of_row(Lane& lane, float part) {
  part += lane.from_lane_beside(part, 1);
  return part + lane.from_lane_beside(part, 2);
}

/// q, k or v (0, 1, 2) of a head.
TRAINSTONE_LANE GlobalRows qkv_rows(AttentionSizes const& sizes, std::byte const* qkv, int which, int b, int h) {
  return {qkv + sizes.qkv_place(b, h, 0) + which * 2 * sizes.channels(), sizes.qkv_row_bytes(), sizes.sequence};
}

/// Until the copies of all lanes are there, and no lane is still at what was before.
template <class Lane>
TRAINSTONE_LANE void await_copies(Lane& lane) {
  lane.template wait_copies<0>();
  lane.show_copies();
  lane.block_barrier();
}

/// Which of `count` places in turn a tile has.
template <int count>
TRAINSTONE_LANE int turn_of(int tile) {
  return static_cast<int>(static_cast<unsigned>(tile) % count);
}

/// Of the rows of a tile that are multiplied together with `row`: the first one and the last one.
template <class Tiles>
TRAINSTONE_LANE int first_together(int row) {
  return row / Tiles::rows_together * Tiles::rows_together;
}
template <class Tiles>
TRAINSTONE_LANE int last_together(int row) {
  return first_together<Tiles>(row) + Tiles::rows_together - 1;
}

/// Which head a block works on, and which of its tiles. Blocks that begin earlier have tiles of lower numbers.
struct PlaceOfBlock {
  int b, h, tile;

  TRAINSTONE_LANE PlaceOfBlock(AttentionSizes const& sizes, int block)
      : b(block % (sizes.batch * sizes.heads) / sizes.heads),
        h(block % sizes.heads),
        tile(block / (sizes.batch * sizes.heads)) {}
};

/// Tiles of keys and values that go by: one is in work, the next one comes.
template <class Tiles>
class KeyStages {
public:
  using Tile = typename Tiles::KeyTile;
  static constexpr int tile_bytes = Tiles::tile_bytes;
  static constexpr int bytes = 2 * Tiles::stages * tile_bytes;

  TRAINSTONE_LANE explicit KeyStages(std::byte* shared) : m_shared(shared) {}
  TRAINSTONE_LANE Tile keys(int tile) const { return {m_shared + 2 * stage(tile) * tile_bytes}; }
  TRAINSTONE_LANE Tile values(int tile) const { return {m_shared + (2 * stage(tile) + 1) * tile_bytes}; }
  template <class Lane>
  TRAINSTONE_LANE void bring_both(Lane& lane, GlobalRows const& of_keys, GlobalRows const& of_values, int tile) const {
    bring<Tiles::threads, Tiles::keys>(lane, keys(tile), of_keys.from(tile * Tiles::keys));
    bring<Tiles::threads, Tiles::keys>(lane, values(tile), of_values.from(tile * Tiles::keys));
    lane.end_copies();
  }

private:
  static TRAINSTONE_LANE int stage(int tile) { return turn_of<Tiles::stages>(tile); }

  std::byte* m_shared;
};

/// A mask that keeps all.
struct KeepsAll {
  static constexpr bool drops = false;
};

} // namespace trainstone::Cuda
