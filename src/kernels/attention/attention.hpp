#pragma once

// Causal multi-head self-attention with materialised probabilities, and its gradient. Reads q, k and v where the QKV
// GEMM left them: row n = b T + t of qkv is [q(C) k(C) v(C)], head h occupies columns h HS .. (h + 1) HS of each.
// Skips what the causal mask hides but for corners along the diagonal: the FLOPs counted are the lower triangle's.
// Source: Attention Is All You Need, arXiv:1706.03762.

#include "core/views.hpp"
#include "kernels/dropout.hpp"

#include <cstdint>

namespace trainstone {

/// FLOPs of attention_forward: two products over the lower triangle.
std::uint64_t attention_forward_flops(Index batch, Index sequence, Index heads, Index head_size);

/// FLOPs of attention_forward without `out`: one product over the lower triangle.
std::uint64_t attention_probabilities_flops(Index batch, Index sequence, Index heads, Index head_size);

/// FLOPs of attention_backward: four products over the lower triangle.
std::uint64_t attention_backward_flops(Index batch, Index sequence, Index heads, Index head_size);

/// probabilities = softmax of q k^T / sqrt(HS) over positions <= own; out = probabilities v.
///                                                           reference: reference::attention_forward
/// \param[in]  exec             work is enqueued here; returns without fencing
/// \param[in]  qkv (B T, 3 C)   \param[in] heads   C is a multiple of it
/// \param[out] probabilities (B, NH, T, T)  overwritten, kept for backward; 0 above the diagonal
/// \param[out] out (B T, C)     overwritten; or empty: the probabilities are enough
/// \param[in]  dropout          of the probabilities, on their way to the values; off: none
/// \param[out] mask (B, NH, T, T)  written up to the diagonal; or empty: it is not kept
/// \throws Error                if extents differ (message names both shapes)
/// Work: attention_forward_flops; 4 B T C sizeof(T) + B NH T^2 sizeof(T) bytes, B NH T^2 more for a mask. Without `out`
/// attention_probabilities_flops, and 2 B T C in place of 4.
template <class T>
void attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index heads, Tensor4<T> probabilities,
                       Matrix<T> out, Dropout const& dropout = {}, Tensor4<MaskByte> mask = {});

/// The gradient of attention_forward. All sums run in a fixed order: the same bits in every run.
///                                                           reference: reference::attention_backward
/// \param[in]  exec             work is enqueued here; returns without fencing
/// \param[in]  qkv (B T, 3 C)   \param[in] probabilities (B, NH, T, T) of the forward pass
/// \param[in]  d_out (B T, C)   \param[out] d_qkv (B T, 3 C)   overwritten
/// \param[in]  dropout          as forward had it   \param[in] mask   that it left, or empty: it is computed again
/// \throws Error                if extents differ (message names both shapes)
/// Work: attention_backward_flops; 7 B T C sizeof(T) + B NH T^2 sizeof(T) bytes, B NH T^2 more for a mask.
template <class T>
void attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Tensor4<T const> probabilities,
                        Matrix<T const> d_out, Matrix<T> d_qkv, Dropout const& dropout = {},
                        Tensor4<MaskByte const> mask = {});

} // namespace trainstone
