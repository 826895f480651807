#pragma once

// Causal multi-head self-attention without the matrix of probabilities, and its gradient: tiles of keys go by while the
// softmax of each query is corrected, and backward computes the probabilities again from one number per query. Reads
// qkv as attention.hpp does. Memory grows with the sequence, not with its square. Skips tiles that the causal mask
// hides altogether: the FLOPs counted are those of the tiles that run. Source: FlashAttention-2: Faster Attention with
// Better Parallelism and Work Partitioning, arXiv:2307.08691.

#include "core/views.hpp"
#include "kernels/dropout.hpp"

#include <cstdint>

namespace trainstone {

/// FLOPs that flash_attention_forward executes: two products over the pairs of query and key in the tiles that run,
/// each of a tile of keys and all queries from its first key on.
std::uint64_t flash_attention_forward_flops(Index batch, Index sequence, Index heads, Index head_size);

/// FLOPs that flash_attention_backward executes: five products over the same pairs, on devices seven, because teams
/// that share a pair of tiles both compute the scores and their gradients.
std::uint64_t flash_attention_backward_flops(Index batch, Index sequence, Index heads, Index head_size);

/// out = dropout(softmax of q k^T / sqrt(HS) over positions <= own) v; out is rounded once. A sequence's result does
/// not depend on the others of the batch.                         reference: reference::attention_forward
/// \param[in]  exec             work is enqueued here; returns without fencing
/// \param[in]  qkv (B T, 3 C)   \param[in] heads   C is a multiple of it
/// \param[in]  dropout          of probabilities, a head's keys being a row
/// \param[out] log_sum_exp (B NH T) fp32   of each query's scores, without dropout; overwritten, kept for backward
/// \param[out] out (B T, C)     overwritten
/// \throws Error                if extents differ (message names both shapes)
/// Work: flash_attention_forward_flops; 4 B T C sizeof(T) + 4 B NH T bytes.
template <class T>
void flash_attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                             Dropout const& dropout, Vector<float> log_sum_exp, Matrix<T> out);

/// The gradient of flash_attention_forward. All sums run in a fixed order: the same bits in every run.
///                                                           reference: reference::attention_backward
/// \param[in]  exec             work is enqueued here; returns without fencing
/// \param[in]  qkv (B T, 3 C)   \param[in] log_sum_exp (B NH T), out (B T, C)   of the forward pass
/// \param[in]  dropout          that of the forward pass
/// \param[in]  d_out (B T, C)   \param[out] d_qkv (B T, 3 C)   overwritten
/// \throws Error                if extents differ (message names both shapes)
/// Work: flash_attention_backward_flops; 8 B T C sizeof(T) + 4 B NH T bytes.
template <class T>
void flash_attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                              Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                              Matrix<T const> d_out, Matrix<T> d_qkv);

namespace Impl {
/// The same with a team per tile, as on devices, or with one per head, as on hosts: the bits are the same.
template <class T>
void flash_attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                              Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                              Matrix<T const> d_out, Matrix<T> d_qkv, bool by_tiles);
} // namespace Impl

} // namespace trainstone
