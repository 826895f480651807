#include "model/gpt.hpp"

#include "core/region.hpp"
#include "kernels/attention.hpp"
#include "kernels/bias_gelu.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/initialize.hpp"
#include "kernels/layernorm.hpp"
#include "kernels/residual.hpp"

namespace trainstone {

Gpt::Gpt(GptConfig const& config, ParameterTable const& table, MicroBatchShape shape, Activations const& activations,
         Gemm& gemm)
    : m_config(config), m_table(&table), m_shape(shape), m_activations(activations), m_gemm(&gemm) {
  TRAINSTONE_REQUIRE(shape.sequence <= config.context, "sequence {} > context {}", shape.sequence, config.context);
}

Matrix<float const> Gpt::input(Index block) const {
  return block == 0 ? m_activations.embedded : m_activations.blocks[static_cast<std::size_t>(block - 1)].output;
}

Matrix<float> Gpt::output(Unit unit) const {
  switch (unit.kind) {
  case UnitKind::embed: return m_activations.embedded;
  case UnitKind::block: return m_activations.blocks[static_cast<std::size_t>(unit.block)].output;
  case UnitKind::head: return m_activations.logits;
  }
  TRAINSTONE_REQUIRE(false, "no unit kind {}", static_cast<int>(unit.kind));
}

void Gpt::linear(ExecutionSpace const& exec, Matrix<float const> x, Matrix<float const> weight, Matrix<float> y) {
  (*m_gemm)(exec, Transpose::no, x, Transpose::yes, weight, y, Write::overwrite);
}

void Gpt::linear_backward(ExecutionSpace const& exec, Matrix<float const> d_y, Matrix<float const> x,
                          Matrix<float const> weight, Matrix<float> d_x, Matrix<float> d_weight, Write write) {
  (*m_gemm)(exec, Transpose::no, d_y, Transpose::no, weight, d_x, Write::overwrite);
  (*m_gemm)(exec, Transpose::yes, d_y, Transpose::no, x, d_weight, write);
}

void Gpt::forward(ExecutionSpace const& exec, Unit unit, MicroBatch const& batch, Vector<float const> parameters) {
  ScopedRegion const region("trainstone::model::forward " + to_string(unit));
  Activations const& all = m_activations;
  GroupTensors const weights(*m_table, group_read_by(unit), parameters);
  switch (unit.kind) {
  case UnitKind::embed:
    embedding_forward<float>(exec, batch.tokens, weights.matrix(Tensor::wte), weights.matrix(Tensor::wpe),
                             m_shape.sequence, all.embedded);
    break;
  case UnitKind::block: forward_block(exec, unit.block, parameters); break;
  case UnitKind::head:
    layernorm_forward<float>(exec, input(m_config.layers), weights.vector(Tensor::lnfw), weights.vector(Tensor::lnfb),
                             all.lnf, all.lnf_mean, all.lnf_rstd);
    linear(exec, all.lnf, weights.matrix(Tensor::wte), all.logits);
    break;
  }
}

void Gpt::forward_block(ExecutionSpace const& exec, Index block, Vector<float const> parameters) {
  BlockActivations const& b = m_activations.blocks[static_cast<std::size_t>(block)];
  Matrix<float> const branch = m_activations.branch;
  GroupTensors const w(*m_table, group_read_by({UnitKind::block, block}), parameters);
  layernorm_forward<float>(exec, input(block), w.vector(Tensor::ln1w), w.vector(Tensor::ln1b), b.ln1, b.ln1_mean,
                           b.ln1_rstd);
  linear(exec, b.ln1, w.matrix(Tensor::qkvw), b.qkv);
  add_bias<float>(exec, w.vector(Tensor::qkvb), b.qkv);
  attention_forward<float>(exec, b.qkv, m_config.heads, b.probabilities, b.attention);
  linear(exec, b.attention, w.matrix(Tensor::attprojw), branch);
  residual_layernorm_forward<float>(exec, input(block), branch, w.vector(Tensor::attprojb), w.vector(Tensor::ln2w),
                                    w.vector(Tensor::ln2b), b.middle, b.ln2, b.ln2_mean, b.ln2_rstd);
  linear(exec, b.ln2, w.matrix(Tensor::fcw), b.fc);
  bias_gelu_forward<float>(exec, w.vector(Tensor::fcb), b.fc, b.gelu);
  linear(exec, b.gelu, w.matrix(Tensor::fcprojw), branch);
  residual_forward<float>(exec, b.middle, branch, w.vector(Tensor::fcprojb), b.output);
}

void Gpt::loss(ExecutionSpace const& exec, MicroBatch const& batch, LossMode mode) {
  Activations const& all = m_activations;
  if (mode == LossMode::training)
    cross_entropy_backward_fused<float>(exec, all.logits, batch.targets, m_config.vocab, batch.gradient_scale,
                                        all.losses);
  else
    cross_entropy_forward<float>(exec, all.logits, batch.targets, m_config.vocab, all.losses);
}

/// A block's backward: its activations, its input, weights and where their gradients go.
struct Gpt::BlockBackward {
  BlockActivations const& kept;
  Matrix<float const> input;
  GroupTensors<float const> weights;
  GroupTensors<float> gradients;
  Write write;
};

void Gpt::backward(ExecutionSpace const& exec, Unit unit, MicroBatch const& batch, Vector<float const> parameters,
                   GradientTarget const& target) {
  ScopedRegion const region("trainstone::model::backward " + to_string(unit));
  Activations const& all = m_activations;
  GroupTensors const weights(*m_table, group_read_by(unit), parameters);
  GroupTensors const gradients(*m_table, group_read_by(unit), target.gradients);
  switch (unit.kind) {
  case UnitKind::head:
    linear_backward(exec, all.logits, all.lnf, weights.matrix(Tensor::wte), all.branch, gradients.matrix(Tensor::wte),
                    target.write);
    layernorm_backward<float>(exec, all.branch, input(m_config.layers), weights.vector(Tensor::lnfw), all.lnf_mean,
                              all.lnf_rstd, all.d_stream, Write::overwrite, gradients.vector(Tensor::lnfw),
                              gradients.vector(Tensor::lnfb), target.write);
    break;
  case UnitKind::block: {
    BlockBackward const block{all.blocks[static_cast<std::size_t>(unit.block)], input(unit.block), weights, gradients,
                              target.write};
    backward_mlp(exec, block);
    backward_attention(exec, block);
    break;
  }
  case UnitKind::embed:
    embedding_backward<float>(exec, batch.buckets, all.d_stream, m_shape.sequence, gradients.matrix(Tensor::wte),
                              gradients.matrix(Tensor::wpe), target.write);
    break;
  }
}

// The stream's gradient passes both halves unchanged (residual); each half adds the gradient through its own branch.

void Gpt::backward_mlp(ExecutionSpace const& exec, BlockBackward const& block) {
  auto const& [b, block_input, w, d, write] = block;
  Matrix<float> const d_stream = m_activations.d_stream, d_fc = m_activations.d_fc, d_ln2 = m_activations.branch;
  bias_backward<float>(exec, d_stream, d.vector(Tensor::fcprojb), write);
  linear_backward(exec, d_stream, b.gelu, w.matrix(Tensor::fcprojw), d_fc, d.matrix(Tensor::fcprojw), write);
  gelu_backward<float>(exec, b.fc, d_fc);
  bias_backward<float>(exec, d_fc, d.vector(Tensor::fcb), write);
  linear_backward(exec, d_fc, b.ln2, w.matrix(Tensor::fcw), d_ln2, d.matrix(Tensor::fcw), write);
  layernorm_backward<float>(exec, d_ln2, b.middle, w.vector(Tensor::ln2w), b.ln2_mean, b.ln2_rstd, d_stream, Write::add,
                            d.vector(Tensor::ln2w), d.vector(Tensor::ln2b), write);
}

void Gpt::backward_attention(ExecutionSpace const& exec, BlockBackward const& block) {
  auto const& [b, block_input, w, d, write] = block;
  Matrix<float> const d_stream = m_activations.d_stream, d_qkv = m_activations.d_qkv, d_branch = m_activations.branch;
  bias_backward<float>(exec, d_stream, d.vector(Tensor::attprojb), write);
  linear_backward(exec, d_stream, b.attention, w.matrix(Tensor::attprojw), d_branch, d.matrix(Tensor::attprojw), write);
  attention_backward<float>(exec, b.qkv, b.probabilities, d_branch, d_qkv);
  bias_backward<float>(exec, d_qkv, d.vector(Tensor::qkvb), write);
  linear_backward(exec, d_qkv, b.ln1, w.matrix(Tensor::qkvw), d_branch, d.matrix(Tensor::qkvw), write);
  layernorm_backward<float>(exec, d_branch, block_input, w.vector(Tensor::ln1w), b.ln1_mean, b.ln1_rstd, d_stream,
                            Write::add, d.vector(Tensor::ln1w), d.vector(Tensor::ln1b), write);
}

void initialize_parameters(ExecutionSpace const& exec, ParameterTable const& table, Index group, std::uint64_t seed,
                           Vector<float> parameters) {
  Kokkos::deep_copy(exec, parameters, 0.0f);
  Index const first = table.groups()[static_cast<std::size_t>(group)].offset;
  for (ParameterTensor const& entry : table.tensors()) {
    if (entry.group != group) continue;
    InitialValue const& initial = entry.initial;
    float* const begin = parameters.data() + (entry.offset - first);
    if (initial.random_elements > 0)
      normal_fill<float>(exec, seed, initial.first_counter, initial.deviation,
                         Vector<float>(begin, static_cast<std::size_t>(initial.random_elements)));
    else if (initial.constant != 0)
      Kokkos::deep_copy(exec, Vector<float>(begin, static_cast<std::size_t>(entry.size())),
                        static_cast<float>(initial.constant));
  }
}

} // namespace trainstone
