#pragma once

// Launches the kernels of a part (part_kernels.hpp) for one storage type; included by gpt.cpp alone. Which View a named
// tensor is.

#include "model/gpt.hpp"

#include "core/error.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/flash_attention.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/layernorm.hpp"
#include "kernels/residual.hpp"
#include "model/part_kernels.hpp"

namespace trainstone::Impl {

/// Everything that a part's kernels work on.
struct LaunchedPart {
  ExecutionSpace const& exec;
  GptConfig const& config;
  GptOptions const& options;
  ParameterTable const& table;
  MicroBatchShape shape;
  Activations const& activations;
  Gemm& gemm;
  Part part;
  MicroBatch const& batch;
  LossMode mode = LossMode::training;      ///< of the loss
  ConstStoredVector parameters = {};       ///< of the part's unit
  trainstone::StoredVector gradients = {}; ///< of the part's unit, in backward
  trainstone::StoredVector looked_up = {}; ///< of the token table, where embed leaves its part apart
  Write write = Write::overwrite;          ///< of gradients
  ActivationBuffers buffers = {};          ///< the copies of activations
  std::optional<Index> chunk = {};         ///< of rows, of a loss that is split, and of its backward
};

/// For parameters and activations that are stored as T.
template <class T>
class LaunchedKernels final : public PartKernels {
public:
  explicit LaunchedKernels(LaunchedPart const& of) : m_of(of), m_exec(of.exec) {}

  bool drops() const override { return m_of.batch.dropout.is_on(); }
  bool splits_loss() const override { return m_of.options.splits_loss(); }

  void embed(Activation out) override {
    embedding_forward<T>(m_exec, m_of.batch.tokens, weight_matrix(Tensor::wte), weight_matrix(Tensor::wpe),
                         m_of.shape.sequence, matrix(out));
  }
  void norm(Activation x, LayerNorm const& norm) override {
    layernorm_forward<T>(m_exec, matrix(x), weight_vector(norm.gain), weight_vector(norm.bias), matrix(norm.out),
                         statistics(norm.mean), statistics(norm.rstd));
  }
  void add_and_norm(Activation x, Activation branch, MaybeTensor bias, Activation sum, LayerNorm const& norm) override {
    residual_layernorm_forward<T>(m_exec, matrix(x), matrix(branch), bias_of(bias), weight_vector(norm.gain),
                                  weight_vector(norm.bias), matrix(sum), matrix(norm.out), statistics(norm.mean),
                                  statistics(norm.rstd));
  }
  void add(Activation x, Activation branch, MaybeTensor bias, Activation sum) override {
    residual_forward<T>(m_exec, matrix(x), matrix(branch), bias_of(bias), matrix(sum));
  }
  void linear(Activation x, Tensor weight, MaybeTensor bias, Activation y) override {
    multiply_by(weight, x, y, bias ? Epilogue::add_bias(weight_vector(*bias)) : Epilogue());
  }
  void linear_gelu(Activation x, Tensor weight, Tensor bias, Activation pre, Activation y) override {
    multiply_by(weight, x, y, Epilogue::gelu(weight_vector(bias), matrix(pre)));
  }
  void drop(DropoutSite site, MaybeTensor bias, Activation x, Activation mask) override {
    dropout_forward<T>(m_exec, at(site), m_of.shape.sequence, bias_of(bias), matrix(x), mask_of(mask));
  }
  void attend() override {
    Matrix<T> const qkv = matrix(Activation::qkv), out = matrix(Activation::attention);
    Dropout const dropout = at(DropoutSite::attention);
    if (m_of.options.attention == AttentionKind::materialized)
      attention_forward<T>(m_exec, qkv, m_of.config.heads, probabilities(), out, dropout, attention_mask());
    else
      flash_attention_forward<T>(m_exec, qkv, m_of.shape.batch, m_of.config.heads, dropout,
                                 statistics(Activation::log_sum_exp), out);
  }
  void attention_probabilities() override {
    attention_forward<T>(m_exec, matrix(Activation::qkv), m_of.config.heads, probabilities(), {},
                         at(DropoutSite::attention), attention_mask());
  }
  void loss() override {
    Matrix<T> const logits = matrix(Activation::logits);
    Range const rows = rows_of_chunk();
    Vector<float> const losses(statistics(Activation::losses).data() + rows.begin, logits.extent(0));
    Vector<std::int32_t const> const targets(m_of.batch.targets.data() + rows.begin, logits.extent(0));
    if (m_of.mode == LossMode::training)
      cross_entropy_backward_fused<T>(m_exec, logits, targets, m_of.config.vocab, m_of.batch.gradient_scale, losses);
    else
      cross_entropy_forward<T>(m_exec, logits, targets, m_of.config.vocab, losses);
  }

  void embed_backward(Activation d_out) override {
    with_gradients([&]<class Gradient>(UnitTensors<Gradient> const& d) {
      Matrix<Gradient> d_wte = d.matrix(Tensor::wte);
      if (m_of.looked_up.size > 0)
        d_wte = Matrix<Gradient>(m_of.looked_up.as<Gradient>().data(), d_wte.extent(0), d_wte.extent(1));
      embedding_backward<T>(m_exec, m_of.batch.buckets, matrix(d_out), m_of.shape.sequence, d_wte,
                            d.matrix(Tensor::wpe), m_of.write);
    });
  }
  void drop_backward(DropoutSite site, Activation mask, Activation d_y, Activation d_x) override {
    dropout_backward<T>(m_exec, at(site), m_of.shape.sequence, mask_of(mask), matrix(d_y), matrix(d_x));
  }
  void input_gradient(Activation d_y, Tensor weight, MaybeActivation pre, Activation d_x) override {
    m_of.gemm(m_exec, Transpose::no, matrix(d_y), Transpose::no, weight_matrix(weight), matrix(d_x), Write::overwrite,
              pre ? Epilogue::gelu_gradient(matrix(*pre)) : Epilogue());
  }
  void weight_gradient(Activation d_y, Activation x, Tensor weight, MaybeTensor bias) override {
    with_gradients([&](auto const& d) {
      m_of.gemm(m_exec, Transpose::yes, matrix(d_y), Transpose::no, matrix(x), d.matrix(weight), m_of.write,
                bias ? Epilogue::gradient_of_bias(d.vector(*bias)) : Epilogue());
    });
  }
  void norm_backward(Activation d_y, Activation x, LayerNorm const& norm, Activation d_x, Write d_x_mode) override {
    with_gradients([&](auto const& d) {
      layernorm_backward<T>(m_exec, matrix(d_y), matrix(x), weight_vector(norm.gain), statistics(norm.mean),
                            statistics(norm.rstd), matrix(d_x), d_x_mode, d.vector(norm.gain), d.vector(norm.bias),
                            m_of.write);
    });
  }
  void attend_backward(Activation d_out) override {
    Matrix<T> const qkv = matrix(Activation::qkv), d_qkv = matrix(Activation::d_qkv);
    Dropout const dropout = at(DropoutSite::attention);
    if (m_of.options.attention == AttentionKind::materialized)
      attention_backward<T>(m_exec, qkv, probabilities(), matrix(d_out), d_qkv, dropout, attention_mask());
    else
      flash_attention_backward<T>(m_exec, qkv, m_of.shape.batch, m_of.config.heads, dropout,
                                  statistics(Activation::log_sum_exp), matrix(Activation::attention), matrix(d_out),
                                  d_qkv);
  }

private:
  Index block() const { return m_of.part.kind == PartKind::head ? m_of.config.layers : m_of.part.block; }
  Matrix<T> matrix(Activation what) const {
    trainstone::StoredMatrix const stored = m_of.activations.matrix(what, block(), m_of.buffers);
    Matrix<T> const whole = stored.as<T>();
    if (!m_of.chunk || what == Activation::logits) return whole; // whose memory is a chunk's
    Range const rows = rows_of_chunk();
    return Matrix<T>(whole.data() + rows.begin * stored.columns, static_cast<std::size_t>(rows.size()),
                     whole.extent(1));
  }
  /// All rows, if the loss is not split.
  Range rows_of_chunk() const {
    Index const size = m_of.shape.rows() / m_of.options.loss_chunks, begin = m_of.chunk.value_or(0) * size;
    return {begin, begin + size};
  }
  Vector<float> statistics(Activation what) const { return m_of.activations.statistics(what, block(), m_of.buffers); }
  Matrix<MaskByte> mask_of(Activation what) const { return m_of.activations.mask(what, block(), m_of.buffers); }
  UnitTensors<T const> weights() const { return {m_of.table, m_of.part.block, m_of.parameters.as<T>()}; }
  Matrix<T const> weight_matrix(Tensor tensor) const { return weights().matrix(tensor); }
  Vector<T const> weight_vector(Tensor tensor) const { return weights().vector(tensor); }
  Vector<T const> bias_of(MaybeTensor bias) const { return bias ? weight_vector(*bias) : Vector<T const>(); }

  template <class Element>
  Tensor4<Element> of_pairs(Element* data) const {
    auto const extent = [](Index value) { return static_cast<std::size_t>(value); };
    return Tensor4<Element>(data, extent(m_of.shape.batch), extent(m_of.config.heads), extent(m_of.shape.sequence),
                            extent(m_of.shape.sequence));
  }
  Tensor4<T> probabilities() const { return of_pairs(matrix(Activation::probabilities).data()); }
  Tensor4<MaskByte> attention_mask() const {
    Matrix<MaskByte> const kept = mask_of(Activation::attention_mask);
    return kept.size() > 0 ? of_pairs(kept.data()) : Tensor4<MaskByte>();
  }

  Dropout at(DropoutSite site) const {
    Dropout dropout = m_of.batch.dropout;
    auto const block = site == DropoutSite::embedded ? 0 : static_cast<std::uint32_t>(m_of.part.block);
    dropout.site = static_cast<std::uint32_t>(site) + 3 * block;
    return dropout;
  }

  void multiply_by(Tensor weight, Activation x, Activation y, Epilogue const& epilogue) const {
    m_of.gemm(m_exec, Transpose::no, matrix(x), Transpose::yes, weight_matrix(weight), matrix(y), Write::overwrite,
              epilogue);
  }

  /// body(gradients of the unit), which are stored as parameters are, or in fp32.
  template <class Body>
  void with_gradients(Body const& body) const {
    Index const block = m_of.part.block;
    if (m_of.gradients.storage == Storage::fp32)
      body(UnitTensors<float>(m_of.table, block, m_of.gradients.as<float>()));
    else
      body(UnitTensors<T>(m_of.table, block, m_of.gradients.as<T>()));
  }

  LaunchedPart const& m_of;
  ExecutionSpace const& m_exec;
};

} // namespace trainstone::Impl
