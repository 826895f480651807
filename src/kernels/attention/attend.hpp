#pragma once

// Causal multi-head self-attention that keeps log_sum_exp, by the provider that is asked for (attention_provider.hpp).
// Reads qkv as attention.hpp does. The providers round differently; each gives the same bits in every run, and a
// sequence the same bits in every batch (for cuDNN see kernels/cuda/cudnn_attention.hpp).

#include "core/views.hpp"
#include "kernels/attention/attention_provider.hpp"
#include "kernels/dropout.hpp"

namespace trainstone {

/// out = dropout(softmax of q k^T / sqrt(HS) over positions <= own) v.      reference: reference::attention_forward
/// \param[in]  exec             work is enqueued here; returns without fencing
/// \param[in]  qkv (B T, 3 C)   \param[in] heads   C is a multiple of it
/// \param[in]  dropout          of probabilities, a head's keys being a row
/// \param[out] scratch          at least attention_scratch() numbers, of forward; their content is lost
/// \param[out] log_sum_exp (B NH T) fp32   of each query's scores, without dropout; overwritten, kept for backward
/// \param[out] out (B T, C)     overwritten
/// \throws Error                if extents differ (message names both shapes), the build has no such provider for T, or
///                              there is less scratch
/// Work: attention_kernels().
template <class T>
void attend_forward(ExecutionSpace const& exec, AttentionProvider provider, Matrix<T const> qkv, Index batch,
                    Index heads, Dropout const& dropout, Vector<float> scratch, Vector<float> log_sum_exp,
                    Matrix<T> out);

/// The gradient of attend_forward() by the same provider.                   reference: reference::attention_backward
/// \param[in]  exec             work is enqueued here; returns without fencing
/// \param[in]  qkv (B T, 3 C)   \param[in] log_sum_exp (B NH T), out (B T, C)   of the forward pass
/// \param[in]  dropout          that of the forward pass
/// \param[in]  d_out (B T, C)   \param[out] d_qkv (B T, 3 C)   overwritten
/// \param[out] scratch          at least attention_scratch() numbers, of backward; their content is lost
/// \throws Error                as attend_forward()
/// Work: attention_kernels().
template <class T>
void attend_backward(ExecutionSpace const& exec, AttentionProvider provider, Matrix<T const> qkv, Index batch,
                     Index heads, Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                     Matrix<T const> d_out, Vector<float> scratch, Matrix<T> d_qkv);

} // namespace trainstone
