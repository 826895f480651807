#include "model/gpt.hpp"

#include "core/region.hpp"
#include "kernels/attention.hpp"
#include "kernels/bias_gelu.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/initialize.hpp"
#include "kernels/layernorm.hpp"
#include "kernels/residual.hpp"

namespace trainstone {

Gpt::Gpt(GptConfig const& config, ParameterTable const& table, MicroBatchShape shape, Vector<float> parameters,
         Vector<float> gradients, Activations const& activations, Gemm& gemm)
    : m_config(config),
      m_table(&table),
      m_shape(shape),
      m_parameters(parameters),
      m_gradients(gradients),
      m_activations(activations),
      m_gemm(&gemm) {
  TRAINSTONE_REQUIRE(shape.sequence <= config.context, "sequence {} > context {}", shape.sequence, config.context);
  TRAINSTONE_REQUIRE(static_cast<Index>(parameters.extent(0)) == table.size(), "{} parameters, the table has {}",
                     parameters.extent(0), table.size());
}

Matrix<float const> Gpt::weight(Tensor tensor, Index block) const {
  return matrix_of(m_table->find(tensor, block), m_parameters);
}
Vector<float const> Gpt::vector(Tensor tensor, Index block) const {
  return vector_of(m_table->find(tensor, block), m_parameters);
}
Matrix<float> Gpt::d_weight(Tensor tensor, Index block) const {
  return matrix_of(m_table->find(tensor, block), m_gradients);
}
Vector<float> Gpt::d_vector(Tensor tensor, Index block) const {
  return vector_of(m_table->find(tensor, block), m_gradients);
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

void Gpt::linear(ExecutionSpace const& exec, Matrix<float const> x, Tensor w, Index block, Matrix<float> y) {
  (*m_gemm)(exec, Transpose::no, x, Transpose::yes, weight(w, block), y, Write::overwrite);
}

void Gpt::linear_backward(ExecutionSpace const& exec, Matrix<float const> d_y, Matrix<float const> x, Tensor w,
                          Index block, Matrix<float> d_x, Write mode) {
  (*m_gemm)(exec, Transpose::no, d_y, Transpose::no, weight(w, block), d_x, Write::overwrite);
  (*m_gemm)(exec, Transpose::yes, d_y, Transpose::no, x, d_weight(w, block), mode);
}

void Gpt::forward(ExecutionSpace const& exec, Unit unit, MicroBatch const& batch) {
  ScopedRegion const region("trainstone::model::forward " + to_string(unit));
  Activations const& all = m_activations;
  switch (unit.kind) {
  case UnitKind::embed:
    embedding_forward<float>(exec, batch.tokens, weight(Tensor::wte), weight(Tensor::wpe), m_shape.sequence,
                             all.embedded);
    break;
  case UnitKind::block: forward_block(exec, unit.block); break;
  case UnitKind::head:
    layernorm_forward<float>(exec, input(m_config.layers), vector(Tensor::lnfw), vector(Tensor::lnfb), all.lnf,
                             all.lnf_mean, all.lnf_rstd);
    linear(exec, all.lnf, Tensor::wte, -1, all.logits);
    break;
  }
}

void Gpt::forward_block(ExecutionSpace const& exec, Index block) {
  BlockActivations const& b = m_activations.blocks[static_cast<std::size_t>(block)];
  Matrix<float> const branch = m_activations.branch;
  layernorm_forward<float>(exec, input(block), vector(Tensor::ln1w, block), vector(Tensor::ln1b, block), b.ln1,
                           b.ln1_mean, b.ln1_rstd);
  linear(exec, b.ln1, Tensor::qkvw, block, b.qkv);
  add_bias<float>(exec, vector(Tensor::qkvb, block), b.qkv);
  attention_forward<float>(exec, b.qkv, m_config.heads, b.probabilities, b.attention);
  linear(exec, b.attention, Tensor::attprojw, block, branch);
  residual_layernorm_forward<float>(exec, input(block), branch, vector(Tensor::attprojb, block),
                                    vector(Tensor::ln2w, block), vector(Tensor::ln2b, block), b.middle, b.ln2,
                                    b.ln2_mean, b.ln2_rstd);
  linear(exec, b.ln2, Tensor::fcw, block, b.fc);
  bias_gelu_forward<float>(exec, vector(Tensor::fcb, block), b.fc, b.gelu);
  linear(exec, b.gelu, Tensor::fcprojw, block, branch);
  residual_forward<float>(exec, b.middle, branch, vector(Tensor::fcprojb, block), b.output);
}

void Gpt::loss(ExecutionSpace const& exec, MicroBatch const& batch, LossMode mode) {
  Activations const& all = m_activations;
  if (mode == LossMode::training)
    cross_entropy_backward_fused<float>(exec, all.logits, batch.targets, m_config.vocab, batch.gradient_scale,
                                        all.losses);
  else
    cross_entropy_forward<float>(exec, all.logits, batch.targets, m_config.vocab, all.losses);
}

void Gpt::backward(ExecutionSpace const& exec, Unit unit, MicroBatch const& batch) {
  ScopedRegion const region("trainstone::model::backward " + to_string(unit));
  Activations const& all = m_activations;
  Write const mode = batch.gradients;
  switch (unit.kind) {
  case UnitKind::head:
    linear_backward(exec, all.logits, all.lnf, Tensor::wte, -1, all.branch, mode);
    layernorm_backward<float>(exec, all.branch, input(m_config.layers), vector(Tensor::lnfw), all.lnf_mean,
                              all.lnf_rstd, all.d_stream, Write::overwrite, d_vector(Tensor::lnfw),
                              d_vector(Tensor::lnfb), mode);
    break;
  case UnitKind::block: backward_block(exec, unit.block, mode); break;
  case UnitKind::embed:
    embedding_backward<float>(exec, batch.buckets, all.d_stream, m_shape.sequence, d_weight(Tensor::wte),
                              d_weight(Tensor::wpe), mode);
    break;
  }
}

void Gpt::backward_block(ExecutionSpace const& exec, Index block, Write mode) {
  backward_mlp(exec, block, mode);
  backward_attention(exec, block, mode);
}

// The stream's gradient passes both halves unchanged (residual); each half adds the gradient through its own branch.

void Gpt::backward_mlp(ExecutionSpace const& exec, Index block, Write mode) {
  BlockActivations const& b = m_activations.blocks[static_cast<std::size_t>(block)];
  Matrix<float> const d_stream = m_activations.d_stream, d_fc = m_activations.d_fc, d_ln2 = m_activations.branch;
  bias_backward<float>(exec, d_stream, d_vector(Tensor::fcprojb, block), mode);
  linear_backward(exec, d_stream, b.gelu, Tensor::fcprojw, block, d_fc, mode);
  gelu_backward<float>(exec, b.fc, d_fc);
  bias_backward<float>(exec, d_fc, d_vector(Tensor::fcb, block), mode);
  linear_backward(exec, d_fc, b.ln2, Tensor::fcw, block, d_ln2, mode);
  layernorm_backward<float>(exec, d_ln2, b.middle, vector(Tensor::ln2w, block), b.ln2_mean, b.ln2_rstd, d_stream,
                            Write::add, d_vector(Tensor::ln2w, block), d_vector(Tensor::ln2b, block), mode);
}

void Gpt::backward_attention(ExecutionSpace const& exec, Index block, Write mode) {
  BlockActivations const& b = m_activations.blocks[static_cast<std::size_t>(block)];
  Matrix<float> const d_stream = m_activations.d_stream, d_qkv = m_activations.d_qkv, d_branch = m_activations.branch;
  bias_backward<float>(exec, d_stream, d_vector(Tensor::attprojb, block), mode);
  linear_backward(exec, d_stream, b.attention, Tensor::attprojw, block, d_branch, mode);
  attention_backward<float>(exec, b.qkv, b.probabilities, d_branch, d_qkv);
  bias_backward<float>(exec, d_qkv, d_vector(Tensor::qkvb, block), mode);
  linear_backward(exec, d_qkv, b.ln1, Tensor::qkvw, block, d_branch, mode);
  layernorm_backward<float>(exec, d_branch, input(block), vector(Tensor::ln1w, block), b.ln1_mean, b.ln1_rstd, d_stream,
                            Write::add, d_vector(Tensor::ln1w, block), d_vector(Tensor::ln1b, block), mode);
}

void initialize_parameters(ExecutionSpace const& exec, ParameterTable const& table, std::uint64_t seed,
                           Vector<float> parameters) {
  Kokkos::deep_copy(exec, parameters, 0.0f);
  for (ParameterTensor const& entry : table.tensors()) {
    InitialValue const& initial = entry.initial;
    if (initial.random_elements > 0)
      normal_fill<float>(
          exec, seed, initial.first_counter, initial.deviation,
          Vector<float>(parameters.data() + entry.offset, static_cast<std::size_t>(initial.random_elements)));
    else if (initial.constant != 0)
      Kokkos::deep_copy(exec, vector_of(entry, parameters), static_cast<float>(initial.constant));
  }
}

} // namespace trainstone
