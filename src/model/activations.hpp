#pragma once

// Activations of one micro-batch. Owns the list of tensors that forward keeps for backward and that backward works in.
// One description serves twice: without an arena it is the plan (names and bytes), with one it binds the Views, so the
// prediction cannot differ from what is allocated. The memory is the caller's.

#include "core/memory.hpp"
#include "core/views.hpp"
#include "model/config.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace trainstone {

/// Rows of a micro-batch: `batch` sequences of `sequence` tokens.
struct MicroBatchShape {
  Index batch;
  Index sequence;
  Index rows() const { return batch * sequence; }
};

/// What a block's forward keeps. N = B T rows.
struct BlockActivations {
  Matrix<float> ln1;                ///< (N, C)
  Vector<float> ln1_mean, ln1_rstd; ///< (N)
  Matrix<float> qkv;                ///< (N, 3C)
  Tensor4<float> probabilities;     ///< (B, NH, T, T)
  Matrix<float> attention;          ///< (N, C) heads side by side
  Matrix<float> middle;             ///< (N, C) residual stream after attention
  Matrix<float> ln2;                ///< (N, C)
  Vector<float> ln2_mean, ln2_rstd; ///< (N)
  Matrix<float> fc;                 ///< (N, 4C) biased, before GELU
  Matrix<float> gelu;               ///< (N, 4C)
  Matrix<float> output;             ///< (N, C) residual stream after the block
};

struct Activations {
  Matrix<float> embedded; ///< (N, C)
  std::vector<BlockActivations> blocks;
  Matrix<float> lnf;                ///< (N, C)
  Vector<float> lnf_mean, lnf_rstd; ///< (N)
  Matrix<float> logits;             ///< (N, Vp); the loss turns them into their gradient
  Vector<float> losses;             ///< (N)
  Matrix<float> branch;             ///< (N, C) what a block adds to the stream, forward; its gradient, backward
  Matrix<float> d_stream;           ///< (N, C) gradient of the residual stream, handed from unit to unit
  Matrix<float> d_qkv;              ///< (N, 3C)
  Matrix<float> d_fc;               ///< (N, 4C)
};

/// The activation plan: every tensor with its bytes, in arena order.
std::vector<PlannedTensor> activation_plan(GptConfig const& config, MicroBatchShape shape);

/// Cuts the tensors of the plan out of `arena`, in the same order.
Activations bind_activations(GptConfig const& config, MicroBatchShape shape, Arena& arena);

} // namespace trainstone
