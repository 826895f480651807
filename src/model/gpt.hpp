#pragma once

// GPT-2: forward and backward of every unit on one micro-batch (pre-layer-norm blocks, GELU in its tanh form, learned
// positions, the head tied to the token table, biases). Owns the order of kernels and which View each one reads and
// writes. The memory of parameters, gradients and activations is the caller's; this layer neither communicates nor
// updates. Source: Language Models are Unsupervised Multitask Learners.

#include "kernels/embedding.hpp"
#include "kernels/gemm.hpp"
#include "model/activations.hpp"
#include "model/parameter_table.hpp"
#include "model/unit.hpp"

namespace trainstone {

/// One micro-batch as the kernels read it. N = B T rows.
struct MicroBatch {
  Vector<std::int32_t const> tokens;  ///< (N)
  Vector<std::int32_t const> targets; ///< (N)
  TokenBuckets buckets;               ///< of `tokens`; read by embed's backward only
  float gradient_scale = 1;           ///< 1 / (tokens of the global batch)
  Write gradients = Write::overwrite; ///< what backward does with parameter gradients: add from the second one on
};

/// What happens to the head's logits once they are there.
enum class LossMode {
  training,   ///< losses, and the logits become their gradient
  evaluation, ///< losses only
};

class Gpt {
public:
  /// \param[in] table                   outlives the object
  /// \param[in] parameters, gradients   flat vectors of table.size() elements
  /// \param[in] gemm                    outlives the object
  Gpt(GptConfig const& config, ParameterTable const& table, MicroBatchShape shape, Vector<float> parameters,
      Vector<float> gradients, Activations const& activations, Gemm& gemm);

  GptConfig const& config() const { return m_config; }
  MicroBatchShape shape() const { return m_shape; }
  Activations const& activations() const { return m_activations; }

  /// Runs the unit's forward on `exec`; returns without fencing. The head ends with the logits.
  void forward(ExecutionSpace const& exec, Unit unit, MicroBatch const& batch);

  /// Losses per row, from the logits; in training the logits become gradient_scale times the gradient of the sum.
  void loss(ExecutionSpace const& exec, MicroBatch const& batch, LossMode mode);

  /// Runs the unit's backward on `exec`; returns without fencing. Units in reverse order, head first: the head writes
  /// root's gradient and embed adds to it.
  void backward(ExecutionSpace const& exec, Unit unit, MicroBatch const& batch);

  /// What the unit's forward hands on: the residual stream, (N, C), or the head's logits, (N, Vp).
  Matrix<float> output(Unit unit) const;

private:
  Matrix<float const> input(Index block) const;
  void forward_block(ExecutionSpace const& exec, Index block);
  void backward_block(ExecutionSpace const& exec, Index block, Write mode);
  void backward_mlp(ExecutionSpace const& exec, Index block, Write mode);
  void backward_attention(ExecutionSpace const& exec, Index block, Write mode);
  void linear(ExecutionSpace const& exec, Matrix<float const> x, Tensor weight, Index block, Matrix<float> y);
  void linear_backward(ExecutionSpace const& exec, Matrix<float const> d_y, Matrix<float const> x, Tensor weight,
                       Index block, Matrix<float> d_x, Write mode);

  Matrix<float const> weight(Tensor tensor, Index block = -1) const;
  Vector<float const> vector(Tensor tensor, Index block = -1) const;
  Matrix<float> d_weight(Tensor tensor, Index block = -1) const;
  Vector<float> d_vector(Tensor tensor, Index block = -1) const;

  GptConfig m_config;
  ParameterTable const* m_table;
  MicroBatchShape m_shape;
  Vector<float> m_parameters;
  Vector<float> m_gradients;
  Activations m_activations;
  Gemm* m_gemm;
};

/// Fills the parameters with their initial values: a function of (seed, parameter) alone, the same on every rank and
/// for any number of ranks; padding is zero. Returns without fencing.
void initialize_parameters(ExecutionSpace const& exec, ParameterTable const& table, std::uint64_t seed,
                           Vector<float> parameters);

/// The part of a flat vector that holds `entry`.
template <class T>
Vector<T> vector_of(ParameterTensor const& entry, Vector<T> flat) {
  return Vector<T>(flat.data() + entry.offset, static_cast<std::size_t>(entry.size()));
}
template <class T>
Matrix<T> matrix_of(ParameterTensor const& entry, Vector<T> flat) {
  return Matrix<T>(flat.data() + entry.offset, static_cast<std::size_t>(entry.rows),
                   static_cast<std::size_t>(entry.columns));
}

} // namespace trainstone
