#pragma once

// Launches the kernels of a part (part_kernels.hpp) for one storage type; included by gpt.cpp alone. Which View a named
// tensor is.

#include "model/launched_part.hpp"

#include "core/error.hpp"
#include "core/tree_order.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/attention/attend.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/bias_gelu.hpp"
#include "kernels/cast.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/layernorm.hpp"
#include "kernels/layernorm_parts.hpp"
#include "kernels/positions.hpp"
#include "kernels/residual.hpp"
#include "model/part_kernels.hpp"

#include <algorithm>

namespace trainstone::Impl {

/// For parameters and activations that are stored as T.
template <class T>
class LaunchedKernels final : public PartKernels {
public:
  explicit LaunchedKernels(LaunchedPart const& of) : m_of(of), m_exec(of.exec) {}

  bool drops() const override { return m_of.batch.dropout.is_on(); }
  GptOptions const& options() const override { return m_of.options; }

  void embed(Activation out) override {
    embedding_forward<T>(m_exec, m_of.batch.tokens, weight_matrix(Tensor::wte), weight_matrix(Tensor::wpe),
                         m_of.shape.sequence, matrix(out));
  }
  void look_up(Activation sum) override {
    trainstone::StoredMatrix const out = partial_sum(sum, 0);
    for_each_slice([&](Index slice) {
      Write const others = slice == 0 ? Write::overwrite : Write::add;
      Matrix<T const> const rows = weight_matrix(Tensor::wte, slice);
      if (out.storage == Storage::fp32)
        embedding_lookup<T, float>(m_exec, m_of.batch.tokens, first_token(slice), rows, others, out.as<float>());
      else
        embedding_lookup<T, T>(m_exec, m_of.batch.tokens, first_token(slice), rows, others, out.as<T>());
    });
  }
  void add_positions(Activation looked_up, Activation out) override {
    Matrix<T const> const all = weight_matrix(Tensor::wpe);
    std::size_t const first = static_cast<std::size_t>(own_first()), columns = all.extent(1);
    Matrix<T const> const own(all.data() + first * columns, all.extent(0) - first, columns);
    embedding_add_positions<T>(m_exec, matrix(looked_up), own, own_sequence(), matrix(out));
  }
  void complete(Activation sum) override {
    if (options().shares_positions())
      take_own(partial_sum(sum, 0), matrix(sum));
    else if (sums_apart())
      cast(m_exec, partial_sum(sum, 0).flat(), stored(sum).flat());
  }
  void summed(Activation) override {}
  void place(Activation own, Activation all) override {
    place_positions<T>(m_exec, matrix(own), m_of.shape.batch, own_first(), matrix(all));
  }
  void keep(Activation all, Activation kept) override {
    accumulate(m_exec, Write::overwrite, stored(all).flat(), stored(kept).flat());
  }
  void norm(Activation x, LayerNorm const& norm) override {
    layernorm_forward<T>(m_exec, matrix(x), weight_vector(norm.gain), weight_vector(norm.bias), matrix(norm.out),
                         statistics(norm.mean), statistics(norm.rstd));
  }
  void feature_sums(Activation x) override { layernorm_sums<T>(m_exec, matrix(x), sums_of_features()); }
  void norm_of_sums(Activation x, LayerNorm const& norm) override {
    layernorm_of_sums<T>(m_exec, matrix(x), sums_of_features(), m_of.config.channels, weight_vector(norm.gain),
                         weight_vector(norm.bias), matrix(norm.out), statistics(norm.mean), statistics(norm.rstd));
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
    if (cut_of(weight) == Split::Of::columns) {
      TRAINSTONE_REQUIRE(!bias, "a bias is added to a sum over slices, behind it");
      return add_up(y, [&](Index slice, trainstone::StoredMatrix out) {
        multiply_by(weight, slice, matrix(x, slice), out, Epilogue());
      });
    }
    for_each_slice([&](Index slice) {
      multiply_by(weight, slice, matrix(x), matrix(y, slice),
                  bias ? Epilogue::add_bias(weight_vector(*bias, slice)) : Epilogue());
    });
  }
  void linear_gelu(Activation x, Tensor weight, Tensor bias, Activation pre, Activation y) override {
    for_each_slice([&](Index slice) {
      multiply_by(weight, slice, matrix(x), matrix(y, slice),
                  Epilogue::gelu(weight_vector(bias, slice), matrix(pre, slice)));
    });
  }
  void add_bias(Activation x, Tensor bias, Activation y) override {
    trainstone::add_bias<T>(m_exec, weight_vector(bias), matrix(x), matrix(y));
  }
  void bias_gelu(Activation x, Tensor bias, Activation pre, Activation y) override {
    bias_gelu_forward<T>(m_exec, weight_vector(bias), matrix(x), matrix(pre), matrix(y));
  }
  void gelu_backward(Activation pre, Activation d_x) override {
    trainstone::gelu_backward<T>(m_exec, matrix(pre), matrix(d_x));
  }
  void drop(DropoutSite site, MaybeTensor bias, Activation x, Activation mask) override {
    dropout_forward<T>(m_exec, at_own_positions(site), own_sequence(), bias_of(bias), matrix(x), mask_of(mask));
  }
  void attend() override {
    for_each_slice([&](Index slice) {
      Matrix<T> const qkv = matrix(Activation::qkv, slice), out = matrix(Activation::attention, slice);
      Dropout const dropout = at_heads_of(slice);
      if (m_of.options.attention == AttentionKind::materialized)
        attention_forward<T>(m_exec, qkv, heads(), probabilities(slice), out, dropout, attention_mask(slice));
      else
        attend_forward<T>(m_exec, options().attention_provider, qkv, m_of.shape.batch, heads(), dropout,
                          statistics(Activation::scratch), statistics(Activation::log_sum_exp, slice), out);
    });
  }
  void attention_probabilities() override {
    for_each_slice([&](Index slice) {
      attention_forward<T>(m_exec, matrix(Activation::qkv, slice), heads(), probabilities(slice), {},
                           at_heads_of(slice), attention_mask(slice));
    });
  }
  void loss() override {
    Matrix<T> const logits = matrix(Activation::logits);
    if (m_of.mode == LossMode::training)
      cross_entropy_backward_fused<T>(m_exec, logits, targets(), m_of.config.vocab, m_of.batch.gradient_scale,
                                      losses());
    else
      cross_entropy_forward<T>(m_exec, logits, targets(), m_of.config.vocab, losses());
  }
  void loss_maximum() override {
    for_each_slice([&](Index slice) {
      cross_entropy_maximum<T>(m_exec, matrix(Activation::logits, slice), tokens_of(slice),
                               slice == 0 ? Write::overwrite : Write::add, statistics(Activation::loss_maximum));
    });
  }
  void loss_sums() override {
    LogitsUse const use = m_of.mode == LossMode::training ? LogitsUse::become_gradient : LogitsUse::kept;
    for_each_slice([&](Index slice) {
      cross_entropy_sums<T>(m_exec, matrix(Activation::logits, slice), targets(), first_token(slice), tokens_of(slice),
                            statistics(Activation::loss_maximum), use, loss_sums_of(slice));
    });
    if (slices().count() > 1) add_parts(m_exec, m_of.activations.doubles(Activation::loss_sums));
  }
  void loss_of_sums() override {
    Vector<float> const maximum = statistics(Activation::loss_maximum);
    cross_entropy_losses(m_exec, maximum, loss_sums_of(0), losses());
    if (m_of.mode == LossMode::training)
      for_each_slice([&](Index slice) {
        cross_entropy_gradient<T>(m_exec, matrix(Activation::logits, slice), targets(), first_token(slice),
                                  tokens_of(slice), maximum, loss_sums_of(0), m_of.batch.gradient_scale);
      });
  }

  void embed_backward(Activation d_out) override {
    with_gradients([&]<class Gradient>(UnitTensors<Gradient> const& d) {
      for_each_slice([&](Index slice) {
        embedding_backward_tokens<T>(m_exec, m_of.batch.buckets, matrix(d_out), first_token(slice),
                                     looked_up_gradient(d, slice));
      });
      embedding_backward_positions<T>(m_exec, matrix(d_out), m_of.shape.sequence, d.matrix(Tensor::wpe), m_of.write);
    });
  }
  void drop_backward(DropoutSite site, Activation mask, Activation d_y, Activation d_x) override {
    dropout_backward<T>(m_exec, at_own_positions(site), own_sequence(), mask_of(mask), matrix(d_y), matrix(d_x));
  }
  void input_gradient(Activation d_y, Tensor weight, MaybeActivation pre, Activation d_x) override {
    auto const multiply = [&](Index slice, Matrix<T const> d_out, trainstone::StoredMatrix out) {
      m_of.gemm(m_exec, Transpose::no, d_out, Transpose::no, weight_matrix(weight, slice), out, Write::overwrite,
                pre ? Epilogue::gelu_gradient(matrix(*pre, slice)) : Epilogue());
    };
    if (cut_of(weight) == Split::Of::columns)
      return for_each_slice([&](Index slice) { multiply(slice, matrix(d_y), matrix(d_x, slice)); });
    add_up(d_x, [&](Index slice, trainstone::StoredMatrix out) { multiply(slice, matrix(d_y, slice), out); });
  }
  void weight_gradient(Activation d_y, Activation x, Tensor weight, MaybeTensor bias) override {
    bool const cuts_input = cut_of(weight) == Split::Of::columns;
    with_gradients([&](auto const& d) {
      for_each_slice([&](Index slice) {
        bool const adds_bias = bias && (!cuts_input || slice == 0); // which no slice cuts
        m_of.gemm(m_exec, Transpose::yes, cuts_input ? matrix(d_y) : matrix(d_y, slice), Transpose::no,
                  cuts_input ? matrix(x, slice) : matrix(x), d.matrix(weight, slice), m_of.write,
                  adds_bias ? Epilogue::gradient_of_bias(d.vector(*bias, slice)) : Epilogue());
      });
    });
  }
  void norm_backward(Activation d_y, Activation x, LayerNorm const& norm, Activation d_x, Write d_x_mode) override {
    with_gradients([&](auto const& d) {
      layernorm_backward<T>(m_exec, matrix(d_y), matrix(x), weight_vector(norm.gain), statistics(norm.mean),
                            statistics(norm.rstd), matrix(d_x), d_x_mode, d.vector(norm.gain), d.vector(norm.bias),
                            m_of.write);
    });
  }
  void feature_sums_backward(Activation d_y, Activation x, LayerNorm const& norm) override {
    layernorm_backward_sums<T>(m_exec, matrix(d_y), matrix(x), weight_vector(norm.gain), statistics(norm.mean),
                               statistics(norm.rstd), sums_of_features());
  }
  void norm_input_of_sums(Activation d_y, Activation x, LayerNorm const& norm, Activation d_x,
                          Write d_x_mode) override {
    layernorm_backward_of_sums<T>(m_exec, matrix(d_y), matrix(x), weight_vector(norm.gain), statistics(norm.mean),
                                  statistics(norm.rstd), sums_of_features(), m_of.config.channels, matrix(d_x),
                                  d_x_mode);
  }
  void norm_input_gradient(Activation d_y, Activation x, LayerNorm const& norm, Activation d_x,
                           Write d_x_mode) override {
    layernorm_backward_input<T>(m_exec, matrix(d_y), matrix(x), weight_vector(norm.gain), statistics(norm.mean),
                                statistics(norm.rstd), matrix(d_x), d_x_mode);
  }
  void norm_sums(Activation d_y, Activation x, LayerNorm const& norm) override {
    layernorm_block_sums<T>(m_exec, matrix(d_y), matrix(x), statistics(norm.mean), statistics(norm.rstd),
                            own_sequence(), all_norm_sums());
    if (options().shares_positions() && slices().count() > 1) add_parts(m_exec, all_norm_sums());
  }
  void norm_parameters(LayerNorm const& norm) override {
    Matrix<float const> const all = all_norm_sums();
    Matrix<float const> const sums(all.data(), options().shares_positions() ? 1 : all.extent(0), all.extent(1));
    with_gradients([&](auto const& d) {
      layernorm_sum_blocks(m_exec, sums, d.vector(norm.gain), d.vector(norm.bias), m_of.write);
    });
  }
  void attend_backward(Activation d_out) override {
    for_each_slice([&](Index slice) {
      Matrix<T> const qkv = matrix(Activation::qkv, slice), d_qkv = matrix(Activation::d_qkv, slice);
      Dropout const dropout = at_heads_of(slice);
      if (m_of.options.attention == AttentionKind::materialized)
        attention_backward<T>(m_exec, qkv, probabilities(slice), matrix(d_out, slice), d_qkv, dropout,
                              attention_mask(slice));
      else
        trainstone::attend_backward<T>(m_exec, options().attention_provider, qkv, m_of.shape.batch, heads(), dropout,
                                       statistics(Activation::log_sum_exp, slice), matrix(Activation::attention, slice),
                                       matrix(d_out, slice), statistics(Activation::scratch), d_qkv);
    });
  }

private:
  // --- slices --------------------------------------------------------------------------------------------------------

  TensorSlices const& slices() const { return m_of.options.slices; }
  template <class Body>
  void for_each_slice(Body const& body) const {
    for (Index slice = 0; slice < slices().count(); ++slice) body(slice);
  }
  Index heads() const { return m_of.config.heads / slices().blocks; }
  /// The vocabulary of a slice that is here: its first token, and how many it has. The rest is padding.
  Index slice_rows() const { return m_of.config.padded_vocab() / slices().blocks; }
  Index first_token(Index slice) const { return (slices().first() + slice) * slice_rows(); }
  Index tokens_of(Index slice) const {
    return std::clamp<Index>(m_of.config.vocab - first_token(slice), 0, slice_rows());
  }

  /// The positions that are here, of every sample: how many, and the first one.
  Index own_sequence() const { return own_rows(m_of.shape, options()).sequence; }
  Index own_first() const { return first_position(m_of.shape, options()); }
  void take_own(trainstone::StoredMatrix const& all, Matrix<T> own) const {
    if (all.storage == Storage::fp32)
      take_positions<float, T>(m_exec, all.as<float>(), m_of.shape.batch, own_first(), own);
    else
      take_positions<T, T>(m_exec, all.as<T>(), m_of.shape.batch, own_first(), own);
  }

  bool sums_apart() const { return sums_lie_apart(m_of.options, storage_of<T>()); }
  /// Where sums of some slices wait. The first place is where the sum belongs, if the types are the same.
  trainstone::StoredMatrix partial_sum(Activation sum, Index place) const {
    if (!sums_apart() && place == 0) return stored(sum);
    return stored(Activation::partial, place - (sums_apart() ? 0 : 1));
  }
  /// The sum over the slices that are here, in the balanced binary tree: add(slice, out) overwrites `out`.
  template <class Add>
  void add_up(Activation sum, Add const& add) const {
    TreeOrder order(slices().count());
    for (TreeOrder::Step step{}; order.next(step);)
      if (step.adds())
        accumulate(m_exec, Write::add, partial_sum(sum, step.place).flat(), partial_sum(sum, step.place - 1).flat());
      else
        add(step.term, partial_sum(sum, step.place));
  }

  // --- named tensors -------------------------------------------------------------------------------------------------

  Index block() const { return m_of.part.kind == PartKind::head ? m_of.config.layers : m_of.part.block; }
  /// Of a chunk, the rows of the chunk. What is of one chunk of the loss alone has no other rows.
  trainstone::StoredMatrix stored(Activation what, Index number = 0) const {
    trainstone::StoredMatrix matrix = m_of.activations.matrix(what, block(), m_of.buffers, number);
    bool const is_of_chunk = m_of.chunk && what == Activation::logits;
    if ((!m_of.chunk && !m_of.row_chunk) || is_of_chunk) return matrix;
    Range const rows = rows_of_chunk();
    trainstone::StoredVector const part = matrix.flat().part(rows.begin * matrix.columns, rows.size() * matrix.columns);
    matrix.data = part.data;
    matrix.rows = rows.size();
    return matrix;
  }
  Matrix<T> matrix(Activation what, Index slice = 0) const { return stored(what, slice).template as<T>(); }
  /// All rows, if the piece is of no chunk.
  Range rows_of_chunk() const {
    Index const chunks = m_of.row_chunk ? options().row_chunks : options().loss_chunks;
    Index const size = m_of.shape.rows() / chunks, begin = m_of.row_chunk.value_or(m_of.chunk.value_or(0)) * size;
    return {begin, begin + size};
  }
  Vector<std::int32_t const> targets() const {
    Range const rows = rows_of_chunk();
    return Vector<std::int32_t const>(m_of.batch.targets.data() + rows.begin, static_cast<std::size_t>(rows.size()));
  }
  Vector<float> losses() const {
    Range const rows = rows_of_chunk();
    return Vector<float>(statistics(Activation::losses).data() + rows.begin, static_cast<std::size_t>(rows.size()));
  }
  /// By block of positions; when all are added up, the first row is of all.
  Matrix<float> all_norm_sums() const {
    return m_of.activations.matrix(Activation::norm_sums, block()).template as<float>();
  }
  /// Of a slice; when all are added up, those of slice 0 are of all.
  Matrix<double> loss_sums_of(Index slice) const {
    Matrix<double> const all = m_of.activations.doubles(Activation::loss_sums);
    return Matrix<double>(all.data() + slice * static_cast<Index>(all.extent(1)), all.extent(1) / 2, 2);
  }
  Matrix<double> sums_of_features() const { return m_of.activations.doubles(Activation::feature_sums); }
  Vector<float> statistics(Activation what, Index slice = 0) const {
    return m_of.activations.statistics(what, block(), m_of.buffers, slice);
  }
  Matrix<MaskByte> mask_of(Activation what, Index slice = 0) const {
    return m_of.activations.mask(what, block(), m_of.buffers, slice);
  }
  UnitTensors<T const> weights() const { return {m_of.table, m_of.part.block, m_of.parameters.as<T>()}; }
  Matrix<T const> weight_matrix(Tensor tensor, Index slice = 0) const { return weights().matrix(tensor, slice); }
  Vector<T const> weight_vector(Tensor tensor, Index slice = 0) const { return weights().vector(tensor, slice); }
  Vector<T const> bias_of(MaybeTensor bias) const { return bias ? weight_vector(*bias) : Vector<T const>(); }

  template <class Element>
  Tensor4<Element> of_pairs(Element* data) const {
    auto const extent = [](Index value) { return static_cast<std::size_t>(value); };
    return Tensor4<Element>(data, extent(m_of.shape.batch), extent(heads()), extent(m_of.shape.sequence),
                            extent(m_of.shape.sequence));
  }
  Tensor4<T> probabilities(Index slice) const { return of_pairs(matrix(Activation::probabilities, slice).data()); }
  Tensor4<MaskByte> attention_mask(Index slice) const {
    Matrix<MaskByte> const kept = mask_of(Activation::attention_mask, slice);
    return kept.size() > 0 ? of_pairs(kept.data()) : Tensor4<MaskByte>();
  }

  Dropout at(DropoutSite site) const {
    Dropout dropout = m_of.batch.dropout;
    auto const block = site == DropoutSite::embedded ? 0 : static_cast<std::uint32_t>(m_of.part.block);
    dropout.site = static_cast<std::uint32_t>(site) + 3 * block;
    return dropout;
  }
  /// Of the positions and the features that are here.
  Dropout at_own_positions(DropoutSite site) const {
    Dropout dropout = at(site);
    dropout.first_position = own_first();
    dropout.first_feature = slices().feature_part * (m_of.config.channels / slices().feature_parts);
    return dropout;
  }
  Dropout at_heads_of(Index slice) const {
    Dropout dropout = at(DropoutSite::attention);
    dropout.first_head = static_cast<std::uint32_t>((slices().first() + slice) * heads());
    return dropout;
  }

  void multiply_by(Tensor weight, Index slice, Matrix<T const> x, trainstone::StoredMatrix y,
                   Epilogue const& epilogue) const {
    m_of.gemm(m_exec, Transpose::no, x, Transpose::yes, weight_matrix(weight, slice), y, Write::overwrite, epilogue);
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
  /// Where embed adds to the gradient of a slice of the token table: beside head's part, or apart from it.
  template <class Gradient>
  Matrix<Gradient> looked_up_gradient(UnitTensors<Gradient> const& d, Index slice) const {
    if (m_of.looked_up.size == 0) return d.matrix(Tensor::wte, slice);
    ParameterTensor const& entry = m_of.table.find(Tensor::wte, -1, slice);
    Index const in_group = entry.offset - m_of.table.groups()[static_cast<std::size_t>(entry.group)].offset;
    return Matrix<Gradient>(m_of.looked_up.as<Gradient>().data() + in_group, static_cast<std::size_t>(entry.rows),
                            static_cast<std::size_t>(entry.columns));
  }

  LaunchedPart const& m_of;
  ExecutionSpace const& m_exec;
};

} // namespace trainstone::Impl
