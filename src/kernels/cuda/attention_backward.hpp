#pragma once

// The backward pass of causal attention on tensor cores, as two kernels, so that nothing is added by two blocks and the
// bits are the same in every run. AttentionQueries has blocks of queries: it computes d_q, and of each query the sum of
// d_out out. AttentionKeys has blocks of keys: it computes d_k and d_v. Both compute scores and their gradients again:
// seven products where one pass with atomic sums has five. Source: FlashAttention-2: Faster Attention with Better
// Parallelism and Work Partitioning, arXiv:2307.08691.

#include "kernels/cuda/attention_rows.hpp"

namespace trainstone::Cuda {

template <class Mask>
struct BackwardArguments {
  AttentionSizes sizes;
  std::byte const *qkv, *out, *d_out;
  float const* log_sum_exp;
  float* sums; ///< of d_out out, a number per query: AttentionQueries writes it, AttentionKeys reads it
  std::byte* d_qkv;
  Mask mask;

  TRAINSTONE_LANE GlobalRows rows(int which, int b, int h) const { return qkv_rows(sizes, qkv, which, b, h); }
  /// Where the gradient of these rows is.
  TRAINSTONE_LANE std::byte* gradient(int which, int b, int h, int first) const {
    return d_qkv + sizes.qkv_place(b, h, first) + which * 2 * sizes.channels();
  }
  TRAINSTONE_LANE GlobalRows out_rows(int b, int h) const { return rows_of_head(out, b, h); }
  TRAINSTONE_LANE GlobalRows d_out_rows(int b, int h) const { return rows_of_head(d_out, b, h); }

private:
  TRAINSTONE_LANE GlobalRows rows_of_head(std::byte const* of, int b, int h) const {
    return {of + sizes.out_place(b, h, 0), sizes.out_row_bytes(), sizes.sequence};
  }
};

} // namespace trainstone::Cuda
