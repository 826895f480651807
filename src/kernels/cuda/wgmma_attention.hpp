#pragma once

// Causal multi-head self-attention by asynchronous products of warpgroups (wgmma), which devices of compute
// capability 9.0 have alone: what tensor_attention.hpp computes, for the same types and heads, by the same kernels with
// other tiles and thus other bits. The same bits in every run.

#include "kernels/cuda/tensor_attention.hpp"

#include <string>
#include <string_view>

namespace trainstone {

/// Why a device of this name and compute capability cannot compute it; empty if it can.
std::string wgmma_device_problem(std::string_view device, int major, int minor);
/// The same of this process' device; empty if there is none. Of builds that have these kernels.
std::string wgmma_device_problem();

/// As tensor_attention_flops().
TensorAttentionFlops wgmma_attention_flops(Index batch, Index sequence, Index heads, Index head_size, bool drops);

/// As tensor_attention_forward().                                reference: reference::attention_forward
/// Work: wgmma_attention_flops().forward; 4 B T C sizeof(T) + 4 B NH T bytes.
template <class T>
void wgmma_attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                             Dropout const& dropout, Vector<float> log_sum_exp, Matrix<T> out);

/// As tensor_attention_backward().                               reference: reference::attention_backward
/// Work: the other two of wgmma_attention_flops(); each kernel 6 B T C sizeof(T) + 8 B NH T bytes.
template <class T>
void wgmma_attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                              Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                              Matrix<T const> d_out, Vector<float> sums, Matrix<T> d_qkv);

} // namespace trainstone
