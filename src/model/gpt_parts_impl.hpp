#pragma once

// Bodies of gpt.hpp for one storage type; included by gpt.cpp alone. The order of kernels of every part, forward and
// backward, and which View each one reads and writes.

#include "model/gpt.hpp"

#include "core/region.hpp"
#include "kernels/attention.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/dropout.hpp"
#include "kernels/flash_attention.hpp"
#include "kernels/layernorm.hpp"
#include "kernels/residual.hpp"

namespace trainstone::Impl {

/// The parts of a model whose parameters and activations are stored as T.
template <class T>
class GptParts {
public:
  GptParts(ExecutionSpace const& exec, GptConfig const& config, GptOptions const& options, ParameterTable const& table,
           MicroBatchShape shape, ActivationsOf<T> const& activations, Gemm& gemm)
      : m_exec(exec),
        m_config(config),
        m_options(options),
        m_table(table),
        m_shape(shape),
        m_all(activations),
        m_gemm(gemm) {}

  void forward(Part part, MicroBatch const& batch, Vector<T const> parameters) const {
    GroupTensors const weights(m_table, group_of(part), parameters);
    switch (part.kind) {
    case PartKind::embed:
      embedding_forward<T>(m_exec, batch.tokens, weights.matrix(Tensor::wte), weights.matrix(Tensor::wpe),
                           m_shape.sequence, m_all.embedded);
      if (batch.dropout.is_on())
        dropout_forward<T>(m_exec, at_site(batch.dropout, Site::embedded), m_shape.sequence, {}, m_all.embedded,
                           m_all.embedded_mask);
      break;
    case PartKind::attention: forward_attention(part.block, batch, weights); break;
    case PartKind::mlp: forward_mlp(part.block, batch, weights); break;
    case PartKind::head:
      layernorm_forward<T>(m_exec, input(m_config.layers), weights.vector(Tensor::lnfw), weights.vector(Tensor::lnfb),
                           m_all.lnf, m_all.lnf_mean, m_all.lnf_rstd);
      linear(m_all.lnf, weights.matrix(Tensor::wte), m_all.logits);
      break;
    }
  }

  void loss(MicroBatch const& batch, LossMode mode) const {
    if (mode == LossMode::training)
      cross_entropy_backward_fused<T>(m_exec, m_all.logits, batch.targets, m_config.vocab, batch.gradient_scale,
                                      m_all.losses);
    else
      cross_entropy_forward<T>(m_exec, m_all.logits, batch.targets, m_config.vocab, m_all.losses);
  }

  /// \param[in] piece  see PartTable::backward
  template <class Gradient>
  void backward(Part part, Index piece, MicroBatch const& batch, Vector<T const> parameters, Vector<Gradient> gradients,
                Write write) const {
    GroupTensors const w(m_table, group_of(part), parameters);
    GroupTensors const d(m_table, group_of(part), gradients);
    BlockBackward<Gradient> const block{part.block, batch.dropout, w, d, write};
    switch (part.kind) {
    case PartKind::head:
      input_gradient(m_all.logits, w.matrix(Tensor::wte), m_all.branch);
      weight_gradient(m_all.logits, m_all.lnf, d.matrix(Tensor::wte), write);
      layernorm_backward<T>(m_exec, m_all.branch, input(m_config.layers), w.vector(Tensor::lnfw), m_all.lnf_mean,
                            m_all.lnf_rstd, m_all.d_stream, Write::overwrite, d.vector(Tensor::lnfw),
                            d.vector(Tensor::lnfb), write);
      break;
    case PartKind::mlp: backward_mlp(block, piece); break;
    case PartKind::attention: backward_attention(block, piece); break;
    case PartKind::embed:
      if (batch.dropout.is_on())
        dropout_backward<T>(m_exec, at_site(batch.dropout, Site::embedded), m_shape.sequence, m_all.embedded_mask,
                            m_all.d_stream, m_all.d_stream);
      embedding_backward<T>(m_exec, batch.buckets, m_all.d_stream, m_shape.sequence, d.matrix(Tensor::wte),
                            d.matrix(Tensor::wpe), write);
      break;
    }
  }

private:
  /// Where the model drops; every block has three sites.
  enum class Site : std::uint32_t { embedded = 0, attention = 1, attproj = 2, fcproj = 3 };

  static Dropout at_site(Dropout dropout, Site site, Index block = 0) {
    dropout.site = static_cast<std::uint32_t>(site) + 3 * static_cast<std::uint32_t>(block);
    return dropout;
  }

  /// A block's backward: its weights and where their gradients go.
  template <class Gradient>
  struct BlockBackward {
    Index number;
    Dropout dropout;
    GroupTensors<T const> weights;
    GroupTensors<Gradient> gradients;
    Write write;
  };

  Matrix<T const> input(Index block) const {
    return block == 0 ? m_all.embedded : m_all.blocks[static_cast<std::size_t>(block - 1)].output;
  }

  void linear(Matrix<T const> x, Matrix<T const> weight, Matrix<T> y, Epilogue const& epilogue = {}) const {
    m_gemm(m_exec, Transpose::no, x, Transpose::yes, weight, y, Write::overwrite, epilogue);
  }

  void input_gradient(Matrix<T const> d_y, Matrix<T const> weight, Matrix<T> d_x, Epilogue const& epilogue = {}) const {
    m_gemm(m_exec, Transpose::no, d_y, Transpose::no, weight, d_x, Write::overwrite, epilogue);
  }

  template <class Gradient>
  void weight_gradient(Matrix<T const> d_y, Matrix<T const> x, Matrix<Gradient> d_weight, Write write,
                       Epilogue const& epilogue = {}) const {
    m_gemm(m_exec, Transpose::yes, d_y, Transpose::no, x, d_weight, write, epilogue);
  }

  /// Of the weight and of the bias.
  template <class Gradient>
  void weight_gradients(BlockBackward<Gradient> const& block, Tensor weight, Tensor bias, Matrix<T const> d_y,
                        Matrix<T const> x) const {
    weight_gradient(d_y, x, block.gradients.matrix(weight), block.write,
                    Epilogue::gradient_of_bias(block.gradients.vector(bias)));
  }

  BlockActivationsOf<T> const& kept(Index block) const { return m_all.blocks[static_cast<std::size_t>(block)]; }

  /// The bias that is still to be added to a block's branch: with dropout it is added before.
  Vector<T const> drop_branch(Dropout const& dropout, Vector<T const> bias, Matrix<MaskByte> mask) const {
    if (!dropout.is_on()) return bias;
    dropout_forward<T>(m_exec, dropout, m_shape.sequence, bias, m_all.branch, mask);
    return {};
  }

  /// Computes the gradient of a block's branch in `memory`, if it is not that of the stream, because there is dropout.
  void branch_gradient(Dropout const& dropout, Matrix<MaskByte const> mask, Matrix<T> memory) const {
    if (dropout.is_on()) dropout_backward<T>(m_exec, dropout, m_shape.sequence, mask, m_all.d_stream, memory);
  }
  Matrix<T const> of_branch(Dropout const& dropout, Matrix<T> memory) const {
    return dropout.is_on() ? memory : m_all.d_stream;
  }

  void attend(Index block, Dropout const& dropout) const {
    BlockActivationsOf<T> const& b = kept(block);
    switch (m_options.attention) {
    case AttentionKind::materialized:
      return attention_forward<T>(m_exec, b.qkv, m_config.heads, b.probabilities, b.attention, dropout,
                                  b.attention_mask);
    case AttentionKind::flash:
      return flash_attention_forward<T>(m_exec, b.qkv, m_shape.batch, m_config.heads, dropout, b.log_sum_exp,
                                        b.attention);
    }
  }

  void attend_backward(Index block, Dropout const& dropout, Matrix<T const> d_attention) const {
    BlockActivationsOf<T> const& b = kept(block);
    switch (m_options.attention) {
    case AttentionKind::materialized:
      return attention_backward<T>(m_exec, b.qkv, b.probabilities, d_attention, m_all.d_qkv, dropout, b.attention_mask);
    case AttentionKind::flash:
      return flash_attention_backward<T>(m_exec, b.qkv, m_shape.batch, m_config.heads, dropout, b.log_sum_exp,
                                         b.attention, d_attention, m_all.d_qkv);
    }
  }

  void forward_attention(Index block, MicroBatch const& batch, GroupTensors<T const> const& w) const {
    BlockActivationsOf<T> const& b = kept(block);
    Matrix<T> const branch = m_all.branch;
    Dropout const& dropout = batch.dropout;
    layernorm_forward<T>(m_exec, input(block), w.vector(Tensor::ln1w), w.vector(Tensor::ln1b), b.ln1, b.ln1_mean,
                         b.ln1_rstd);
    linear(b.ln1, w.matrix(Tensor::qkvw), b.qkv, Epilogue::add_bias(w.vector(Tensor::qkvb)));
    attend(block, at_site(dropout, Site::attention, block));
    linear(b.attention, w.matrix(Tensor::attprojw), branch);
    Vector<T const> const attproj_bias =
        drop_branch(at_site(dropout, Site::attproj, block), w.vector(Tensor::attprojb), b.attproj_mask);
    residual_layernorm_forward<T>(m_exec, input(block), branch, attproj_bias, w.vector(Tensor::ln2w),
                                  w.vector(Tensor::ln2b), b.middle, b.ln2, b.ln2_mean, b.ln2_rstd);
  }

  void forward_mlp(Index block, MicroBatch const& batch, GroupTensors<T const> const& w) const {
    BlockActivationsOf<T> const& b = kept(block);
    Matrix<T> const branch = m_all.branch;
    linear(b.ln2, w.matrix(Tensor::fcw), b.gelu, Epilogue::gelu(w.vector(Tensor::fcb), b.fc));
    linear(b.gelu, w.matrix(Tensor::fcprojw), branch);
    Vector<T const> const fcproj_bias =
        drop_branch(at_site(batch.dropout, Site::fcproj, block), w.vector(Tensor::fcprojb), b.fcproj_mask);
    residual_forward<T>(m_exec, b.middle, branch, fcproj_bias, b.output);
  }

  // The stream's gradient passes both halves unchanged (residual); each half adds the gradient through its own branch.

  template <class Gradient>
  void backward_mlp(BlockBackward<Gradient> const& block, Index piece) const {
    auto const& [number, dropout, w, d, write] = block;
    BlockActivationsOf<T> const& b = kept(number);
    Matrix<T> const d_fc = m_all.d_fc, d_ln2 = m_all.branch;
    Dropout const at_branch = at_site(dropout, Site::fcproj, number);
    switch (piece) {
    case 0:
      branch_gradient(at_branch, b.fcproj_mask, m_all.branch);
      return weight_gradients(block, Tensor::fcprojw, Tensor::fcprojb, of_branch(at_branch, m_all.branch), b.gelu);
    case 1:
      input_gradient(of_branch(at_branch, m_all.branch), w.matrix(Tensor::fcprojw), d_fc,
                     Epilogue::gelu_gradient(b.fc));
      return weight_gradients(block, Tensor::fcw, Tensor::fcb, d_fc, b.ln2);
    default:
      input_gradient(d_fc, w.matrix(Tensor::fcw), d_ln2);
      layernorm_backward<T>(m_exec, d_ln2, b.middle, w.vector(Tensor::ln2w), b.ln2_mean, b.ln2_rstd, m_all.d_stream,
                            Write::add, d.vector(Tensor::ln2w), d.vector(Tensor::ln2b), write);
    }
  }

  template <class Gradient>
  void backward_attention(BlockBackward<Gradient> const& block, Index piece) const {
    auto const& [number, dropout, w, d, write] = block;
    BlockActivationsOf<T> const& b = kept(number);
    Matrix<T> const d_stream = m_all.d_stream, d_qkv = m_all.d_qkv, d_input = m_all.branch;
    Matrix<T> const unused(d_qkv.data(), d_stream.extent(0), d_stream.extent(1)); // until attention's backward
    Dropout const at_branch = at_site(dropout, Site::attproj, number);
    switch (piece) {
    case 0:
      branch_gradient(at_branch, b.attproj_mask, unused);
      return weight_gradients(block, Tensor::attprojw, Tensor::attprojb, of_branch(at_branch, unused), b.attention);
    case 1:
      input_gradient(of_branch(at_branch, unused), w.matrix(Tensor::attprojw), d_input);
      attend_backward(number, at_site(dropout, Site::attention, number), d_input);
      return weight_gradients(block, Tensor::qkvw, Tensor::qkvb, d_qkv, b.ln1);
    default:
      input_gradient(d_qkv, w.matrix(Tensor::qkvw), d_input);
      layernorm_backward<T>(m_exec, d_input, input(number), w.vector(Tensor::ln1w), b.ln1_mean, b.ln1_rstd, d_stream,
                            Write::add, d.vector(Tensor::ln1w), d.vector(Tensor::ln1b), write);
    }
  }

  ExecutionSpace const& m_exec;
  GptConfig const& m_config;
  GptOptions const& m_options;
  ParameterTable const& m_table;
  MicroBatchShape m_shape;
  ActivationsOf<T> const& m_all;
  Gemm& m_gemm;
};

} // namespace trainstone::Impl
