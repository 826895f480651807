#pragma once

// Activations of one micro-batch. Owns the list of tensors that forward keeps for backward and that backward works in.
// One description serves twice: without an arena it is the plan (activation_plan.hpp), with one it binds the Views, so
// the prediction cannot differ from what is allocated. Statistics and losses are fp32 whatever the others are stored
// in. The memory is the caller's.

#include "core/memory.hpp"
#include "core/types.hpp"
#include "core/views.hpp"
#include "kernels/dropout.hpp"
#include "model/activation_plan.hpp"
#include "model/config.hpp"

#include <variant>
#include <vector>

namespace trainstone {

/// What a block's forward keeps. N = B T rows.
template <class T>
struct BlockActivationsOf {
  Matrix<T> ln1;                    ///< (N, C)
  Vector<float> ln1_mean, ln1_rstd; ///< (N)
  Matrix<T> qkv;                    ///< (N, 3C)
  Tensor4<T> probabilities;         ///< (B, NH, T, T) of materialised attention; else empty
  Vector<float> log_sum_exp;        ///< (B NH T) of flash attention; else empty
  Matrix<T> attention;              ///< (N, C) heads side by side
  Matrix<T> middle;                 ///< (N, C) residual stream after attention
  Matrix<T> ln2;                    ///< (N, C)
  Vector<float> ln2_mean, ln2_rstd; ///< (N)
  Matrix<T> fc;                     ///< (N, 4C) biased, before GELU
  Matrix<T> gelu;                   ///< (N, 4C)
  Matrix<T> output;                 ///< (N, C) residual stream after the block
  Tensor4<MaskByte> attention_mask; ///< (B, NH, T, T) of materialised attention; masks are empty if they are not kept
  Matrix<MaskByte> attproj_mask, fcproj_mask; ///< (N, C)
};

template <class T>
struct ActivationsOf {
  Matrix<T> embedded;             ///< (N, C)
  Matrix<MaskByte> embedded_mask; ///< (N, C), or empty
  std::vector<BlockActivationsOf<T>> blocks;
  Matrix<T> lnf;                    ///< (N, C)
  Vector<float> lnf_mean, lnf_rstd; ///< (N)
  Matrix<T> logits;                 ///< (N, Vp); the loss turns them into their gradient
  Vector<float> losses;             ///< (N)
  Matrix<T> branch;                 ///< (N, C) what a block adds to the stream, forward; its gradient, backward
  Matrix<T> d_stream;               ///< (N, C) gradient of the residual stream, handed from part to part
  Matrix<T> d_qkv;                  ///< (N, 3C)
  Matrix<T> d_fc;                   ///< (N, 4C)
};

using Activations = std::variant<ActivationsOf<float>, ActivationsOf<bf16>, ActivationsOf<fp16>>;

/// Cuts the tensors of activation_plan(config, shape, storage, options) out of `arena`, in the same order.
Activations bind_activations(GptConfig const& config, MicroBatchShape shape, Arena& arena,
                             Storage storage = Storage::fp32, GptOptions const& options = {});

} // namespace trainstone
