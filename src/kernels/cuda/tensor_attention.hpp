#pragma once

// Causal multi-head self-attention on tensor cores, forward and backward: what flash_attention.hpp computes, in 16 bits
// on CUDA devices. Reads qkv as attention.hpp does. Weights and the gradients of scores are rounded to the storage type
// before they are multiplied; all sums are fp32. The same bits in every run. Products of warps and of warpgroups have
// tiles of their own, and thus other bits.

#include "core/storage.hpp"
#include "core/views.hpp"
#include "kernels/dropout.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace trainstone {

/// Who multiplies.
enum class TensorProducts {
  of_warps,      ///< mma.sync
  of_warpgroups, ///< wgmma: on devices of compute capability 9.0 alone
};

/// Why it cannot be computed so; empty if it can.
std::string tensor_attention_problem(Storage storage, Index head_size);

/// Why a device of this name and compute capability has no products of warpgroups; empty if it has.
std::string wgmma_device_problem(std::string_view device, int major, int minor);
/// The same of this process' device; empty if there is none. Of builds that have these kernels.
std::string wgmma_device_problem();

/// Of all fragments that the three kernels multiply.
struct TensorAttentionFlops {
  std::uint64_t forward, backward_queries, backward_keys;
};
/// Known on hosts, too. \throws Error   for a head size that tensor_attention_problem() refuses
TensorAttentionFlops tensor_attention_flops(TensorProducts products, Index batch, Index sequence, Index heads,
                                            Index head_size, bool drops);

/// As flash_attention_forward(). T is bf16 or fp16.              reference: reference::attention_forward
/// \throws Error   if extents differ (message names both shapes), or for what tensor_attention_problem() refuses
/// Work: tensor_attention_flops().forward; 4 B T C sizeof(T) + 4 B NH T bytes.
template <TensorProducts products, class T>
void tensor_attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                              Dropout const& dropout, Vector<float> log_sum_exp, Matrix<T> out);

/// As flash_attention_backward(), by two kernels: one for queries, one for keys and values.
///                                                               reference: reference::attention_backward
/// \param[out] sums (B NH T)   of each query, d_out out: scratch
/// \throws Error   as tensor_attention_forward()
/// Work: the other two; each kernel 6 B T C sizeof(T) + 8 B NH T bytes.
template <TensorProducts products, class T>
void tensor_attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                               Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                               Matrix<T const> d_out, Vector<float> sums, Matrix<T> d_qkv);

} // namespace trainstone
