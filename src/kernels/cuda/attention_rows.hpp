#pragma once

// Causal attention on tensor cores: where rows lie, and what a lane knows of a tile of scores. Included by the kernels
// of this folder only.

#include "kernels/cuda/tile_fragments.hpp"

namespace trainstone::Cuda {

struct Bf16 {
  static constexpr bool is_bf16 = true;
};
struct Fp16 {
  static constexpr bool is_bf16 = false;
};

/// Sizes, and where one head's rows begin, as kernels/attention/attention_shape.hpp has them.
struct AttentionSizes {
  int batch, sequence, heads, head_size;
  float scale; ///< of scores

  TRAINSTONE_LANE std::int64_t channels() const { return std::int64_t{heads} * head_size; }
  TRAINSTONE_LANE std::int64_t qkv_row_bytes() const { return 6 * channels(); }
  TRAINSTONE_LANE std::int64_t out_row_bytes() const { return 2 * channels(); }
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

constexpr float infinity = __builtin_huge_valf(), log2_of_e = 1.4426950408889634F, log_of_2 = 0.6931471805599453F;

TRAINSTONE_LANE float larger(float x, float y) { return x > y ? x : y; }

/// A mask that keeps all.
struct KeepsAll {
  static constexpr bool drops = false;
};

} // namespace trainstone::Cuda
