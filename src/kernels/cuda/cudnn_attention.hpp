#pragma once

// Causal multi-head self-attention by NVIDIA's cuDNN: what flash_attention.hpp computes, in 16 bits on CUDA devices of
// compute capability 8.0 and later. Reads qkv as attention.hpp does, by strides. cuDNN's backward is asked to be
// deterministic, so it has the same bits in every run; it then writes a value of 16 bits per pair of positions. Batches
// have the same bits as long as cuDNN chooses the same engine for them, as 9.19 does on compute capability 9.0. What
// cuDNN executes is its own affair: FLOPs are those of the model. Has no dropout: cuDNN's masks depend on the batch.

#include "core/storage.hpp"
#include "core/views.hpp"
#include "kernels/dropout.hpp"

#include <cstdint>
#include <string>

namespace trainstone {

/// Why it cannot be computed so; empty if it can.
std::string cudnn_attention_problem(Storage storage, Index sequence, Index head_size, bool drops);

/// By the usual convention of the pairs of position and key <= own: two products forward, five backward, which are the
/// four of the gradients and the scores again.
struct CudnnAttentionFlops {
  std::uint64_t forward, backward;
};
CudnnAttentionFlops cudnn_attention_flops(Index batch, Index sequence, Index heads, Index head_size);

/// fp32 numbers of scratch: cuDNN's workspace. Backward needs 2 bytes per head, 64-aligned positions and 128-aligned
/// keys, and 4 bytes per head and position; some versions 8 bytes per sequence.
Index cudnn_attention_forward_scratch();
Index cudnn_attention_backward_scratch(Index batch, Index sequence, Index heads);

/// As flash_attention_forward(). T is bf16 or fp16.              reference: reference::attention_forward
/// The first call of some extents waits until cuDNN has compiled it.
/// \param[out] scratch   cudnn_attention_forward_scratch() numbers
/// \throws Error   if extents differ (message names both shapes), for what cudnn_attention_problem() refuses, if cuDNN
///         fails, or if it needs more scratch (message names both sizes)
/// Work: cudnn_attention_flops().forward; 4 B T C sizeof(T) + 4 B NH T bytes.
template <class T>
void cudnn_attention_forward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                             Dropout const& dropout, Vector<float> scratch, Vector<float> log_sum_exp, Matrix<T> out);

/// As flash_attention_backward().                                reference: reference::attention_backward
/// \param[out] scratch   cudnn_attention_backward_scratch() numbers
/// \throws Error   as cudnn_attention_forward()
/// Work: cudnn_attention_flops().backward; 8 B T C sizeof(T) + 4 B NH T bytes, without scratch.
template <class T>
void cudnn_attention_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads,
                              Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                              Matrix<T const> d_out, Vector<float> scratch, Matrix<T> d_qkv);

} // namespace trainstone
