// Counts the kernels of parts (part_kernels.hpp) from extents: the FLOPs and bytes that each kernel's contract says.

#include "core/views.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_provider.hpp"
#include "model/part_kernels.hpp"
#include "model/work.hpp"

#include <algorithm>
#include <utility>

namespace trainstone {

namespace {

std::uint64_t count_of(Index value) { return static_cast<std::uint64_t>(value); }

class CountedKernels final : public PartKernels {
public:
  CountedKernels(GptConfig const& config, MicroBatchShape shape, GptOptions const& options, ModelStorage storage,
                 Write mode = Write::overwrite, bool trains = true)
      : m_config(config),
        m_shape(shape),
        m_options(options),
        m_storage(storage),
        m_mode(mode),
        m_trains(trains),
        m_rows(count_of(shape.rows())),
        m_channels(count_of(config.channels / options.slices.feature_parts)),
        m_value_bytes(bytes_per_value(storage.values)),
        m_gradient_bytes(bytes_per_value(storage.gradients)) {}

  void describe(PartKind part, Pass pass) {
    m_part = part;
    m_pass = pass;
    for (PartPiece const& piece : part_pieces(pass, part, m_options, m_how)) describe_piece(piece);
  }
  /// Of one part, once.
  void describe(PartPass const& what) {
    m_mode = what.mode;
    m_trains = what.trains;
    m_how = what.recompute;
    m_each_once = true;
    describe(what.part, what.pass);
  }
  std::vector<KernelUse> take() { return std::move(m_uses); }

  /// Of the head, chunk after chunk: all but the first one add to the token table's gradient.
  void describe_piece(PartPiece const& piece) {
    Write const mode = m_mode;
    m_chunks = piece.chunk ? m_options.loss_chunks : piece.row_chunk ? m_options.row_chunks : 1;
    if (piece.chunk.value_or(0) > 0) m_mode = Write::add;
    piece.describe(*this);
    m_mode = mode;
    m_chunks = 1;
  }

  bool drops() const override { return m_trains && m_options.dropout > 0; }
  GptOptions const& options() const override { return m_options; }

  void embed(Activation out) override {
    count("embedding::forward", size(out), 3 * size(out) * m_value_bytes + m_rows * token_bytes);
  }
  void look_up(Activation sum) override {
    in_every_slice([&] {
      std::uint64_t const elements = sum_elements(sum);
      count("embedding::lookup", elements, elements * (m_value_bytes + sum_bytes()) + m_rows * token_bytes);
    });
  }
  void add_positions(Activation, Activation out) override {
    count("embedding::add_positions", size(out), 3 * size(out) * m_value_bytes);
  }
  void complete(Activation sum) override {
    if (m_options.shares_positions())
      count("positions::take", 0, size(sum) * (sum_bytes() + m_value_bytes));
    else if (sums_apart())
      count("cast::convert", 0, sum_elements(sum) * (sum_bytes() + m_value_bytes));
  }
  void summed(Activation) override {}
  void place(Activation own, Activation) override { count("positions::place", 0, 2 * size(own) * m_value_bytes); }
  void keep(Activation all, Activation) override { count("accumulate", 0, 2 * size(all) * m_value_bytes); }
  void norm(Activation x, LayerNorm const& norm) override {
    count("layernorm::forward", 8 * size(x), 2 * (size(x) + m_channels) * m_value_bytes + statistics_bytes(norm));
  }
  void feature_sums(Activation x) override {
    count("layernorm::sums", 4 * size(x), size(x) * m_value_bytes + feature_sums_bytes());
  }
  void norm_of_sums(Activation x, LayerNorm const& norm) override {
    count("layernorm::of_sums", 4 * size(x),
          2 * (size(x) + m_channels) * m_value_bytes + feature_sums_bytes() + statistics_bytes(norm));
  }
  void add_and_norm(Activation x, Activation, MaybeTensor, Activation, LayerNorm const& norm) override {
    count("layernorm::residual_forward", 10 * size(x),
          (4 * size(x) + 3 * m_channels) * m_value_bytes + statistics_bytes(norm));
  }
  void add(Activation x, Activation, MaybeTensor bias, Activation) override {
    count("residual::forward", 2 * size(x), (3 * size(x) + size(bias)) * m_value_bytes);
  }
  void linear(Activation, Tensor weight, MaybeTensor bias, Activation y) override {
    bool const adds_up = cut_of(weight) == Split::Of::columns;
    forward_product(weight, bias ? EpilogueKind::bias : EpilogueKind::none, adds_up ? sum_storage() : m_storage.values);
    if (adds_up) add_up(y);
  }
  void linear_gelu(Activation, Tensor weight, Tensor, Activation, Activation) override {
    forward_product(weight, EpilogueKind::bias_gelu, m_storage.values);
  }
  void add_bias(Activation x, Tensor bias, Activation) override {
    count("bias::forward", size(x), (2 * size(x) + size(MaybeTensor(bias))) * m_value_bytes);
  }
  void bias_gelu(Activation x, Tensor bias, Activation, Activation) override {
    count("bias_gelu::forward", 10 * size(x), (3 * size(x) + size(MaybeTensor(bias))) * m_value_bytes);
  }
  void gelu_backward(Activation, Activation d_x) override {
    count("gelu::backward", 16 * size(d_x), 3 * size(d_x) * m_value_bytes);
  }
  void drop(DropoutSite, MaybeTensor bias, Activation x, Activation mask) override {
    count("dropout::forward", 2 * size(x), (2 * size(x) + size(bias)) * m_value_bytes + mask_bytes(mask));
  }
  void attend() override {
    if (m_options.attention == AttentionKind::materialized)
      attention("attention::forward", attention_forward_flops, 4 * size(Activation::attention), pairs_bytes());
    else
      provided(AttentionPass::forward);
  }
  void attention_probabilities() override {
    attention("attention::probabilities", attention_probabilities_flops, 2 * size(Activation::attention),
              pairs_bytes());
  }
  void loss_maximum() override {
    for (Index slice = 0; slice < m_options.slices.count(); ++slice)
      count("cross_entropy::maximum", valid(slice), valid(slice) * m_value_bytes + count_of(rows()) * sizeof(float));
  }
  void loss_sums() override {
    for (Index slice = 0; slice < m_options.slices.count(); ++slice)
      count("cross_entropy::sums", 3 * valid(slice), valid(slice) * m_value_bytes + sums_bytes());
    std::uint64_t const sums = size(Activation::loss_sums);
    if (m_options.slices.count() > 1) count("accumulate::parts", sums, sums * sizeof(double));
  }
  void loss_of_sums() override {
    count("cross_entropy::losses", 3 * count_of(rows()), sums_bytes());
    for (Index slice = 0; m_trains && slice < m_options.slices.count(); ++slice)
      count("cross_entropy::gradient", (keeps_powers() ? 1 : 3) * valid(slice),
            (valid(slice) + size(Activation::logits)) * m_value_bytes + sums_bytes());
  }
  void loss() override {
    std::uint64_t const elements = count_of(rows() * m_config.vocab);
    std::uint64_t const row_bytes = count_of(rows()) * (sizeof(float) + token_bytes);
    if (!m_trains) return count("cross_entropy::forward", 4 * elements, elements * m_value_bytes + row_bytes);
    count("cross_entropy::backward", (keeps_powers() ? 5 : 7) * elements,
          (elements + size(Activation::logits)) * m_value_bytes + row_bytes);
  }

  void embed_backward(Activation d_out) override {
    in_every_slice([&] {
      count("embedding::backward_tokens", size(d_out),
            size(d_out) * (m_value_bytes + 2 * m_gradient_bytes) + 3 * m_rows * token_bytes);
    });
    count("embedding::backward_positions", size(d_out), size(d_out) * m_value_bytes + written_bytes(size(Tensor::wpe)));
  }
  void drop_backward(DropoutSite, Activation mask, Activation d_y, Activation) override {
    count("dropout::backward", size(d_y), 2 * size(d_y) * m_value_bytes + mask_bytes(mask));
  }
  void input_gradient(Activation, Tensor weight, MaybeActivation pre, Activation d_x) override {
    auto const [out, in] = shape_of_slice(weight);
    bool const adds_up = cut_of(weight) != Split::Of::columns;
    in_every_slice([&] {
      product(weight, " input gradient",
              {rows(), in, out, Transpose::no, Transpose::no, Write::overwrite, m_storage.values,
               adds_up ? sum_storage() : m_storage.values, pre ? EpilogueKind::gelu_gradient : EpilogueKind::none});
    });
    if (adds_up) add_up(d_x);
  }
  void weight_gradient(Activation, Activation, Tensor weight, MaybeTensor bias) override {
    auto const [out, in] = shape_of_slice(weight);
    bool const once = cut_of(weight) == Split::Of::columns; // the bias, which no slice cuts
    for (Index slice = 0; slice < m_options.slices.count(); ++slice)
      product(weight, " weight gradient",
              {out, in, rows(), Transpose::yes, Transpose::no, m_mode, m_storage.values, m_storage.gradients,
               bias && (slice == 0 || !once) ? EpilogueKind::bias_gradient : EpilogueKind::none});
  }
  void norm_backward(Activation d_y, Activation x, LayerNorm const& norm, Activation d_x, Write d_x_mode) override {
    norm_input_gradient(d_y, x, norm, d_x, d_x_mode);
    count("layernorm::backward_parameters", 4 * size(x),
          2 * size(x) * m_value_bytes + written_bytes(2 * m_channels) + statistics_bytes(norm));
  }
  void feature_sums_backward(Activation, Activation x, LayerNorm const& norm) override {
    count("layernorm::backward_sums", 6 * size(x),
          (2 * size(x) + m_channels) * m_value_bytes + feature_sums_bytes() + statistics_bytes(norm));
  }
  void norm_input_of_sums(Activation, Activation x, LayerNorm const& norm, Activation, Write d_x_mode) override {
    count("layernorm::backward_of_sums", 7 * size(x),
          ((d_x_mode == Write::add ? 4 : 3) * size(x) + m_channels) * m_value_bytes + feature_sums_bytes() +
              statistics_bytes(norm));
  }
  void norm_input_gradient(Activation, Activation x, LayerNorm const& norm, Activation, Write d_x_mode) override {
    count("layernorm::backward", 12 * size(x),
          ((d_x_mode == Write::add ? 4 : 3) * size(x) + m_channels) * m_value_bytes + statistics_bytes(norm));
  }
  void norm_sums(Activation, Activation x, LayerNorm const& norm) override {
    std::uint64_t const sums = size(Activation::norm_sums);
    count("layernorm::block_sums", 4 * size(x),
          2 * size(x) * m_value_bytes + sums * sizeof(float) + statistics_bytes(norm));
    if (adds_norm_blocks()) count("accumulate::parts", sums, sums * sizeof(float));
  }
  void norm_parameters(LayerNorm const&) override {
    std::uint64_t const sums = m_options.shares_positions() ? 2 * m_channels : size(Activation::norm_sums);
    count("layernorm::sum_blocks", sums, sums * sizeof(float) + written_bytes(2 * m_channels));
  }
  void attend_backward(Activation d_out) override {
    if (m_options.attention == AttentionKind::materialized)
      attention("attention::backward", attention_backward_flops, 7 * size(d_out), pairs_bytes());
    else
      provided(AttentionPass::backward);
  }

private:
  static constexpr std::uint64_t token_bytes = sizeof(std::int32_t);
  using AttentionFlops = std::uint64_t(Index batch, Index sequence, Index heads, Index head_size);

  /// That a kernel works on: the rows of a chunk, or all rows.
  Index rows() const { return m_shape.rows() / m_chunks; }
  /// Of one slice, and of this rank's features.
  std::pair<std::int64_t, std::int64_t> shape_of_slice(Tensor weight) const {
    return shape_of(weight, m_config, m_options.slices);
  }
  /// What body counts is done for every slice that is here.
  template <class Body>
  void in_every_slice(Body const& body) {
    m_times = m_options.slices.count();
    body();
    m_times = 1;
  }
  Storage sum_storage() const { return storage_of(Activation::partial, m_options, m_storage.values); }
  bool sums_apart() const { return sums_lie_apart(m_options, m_storage.values); }
  std::uint64_t sum_bytes() const { return bytes_per_value(sum_storage()); }
  /// Of a sum over slices: its rows are those that a kernel works on.
  std::uint64_t sum_elements(Activation sum) const {
    return count_of(rows() * extents_of(sum, m_config, m_shape, m_storage.values, m_options).columns);
  }
  /// Sums of some slices are added to others, until all that are here are added up.
  void add_up(Activation sum) {
    std::uint64_t const elements = sum_elements(sum);
    for (Index slice = 1; slice < m_options.slices.count(); ++slice)
      count("accumulate", elements, 3 * elements * sum_bytes());
  }
  bool keeps_powers() const { return host_reaches_memory && m_storage.values == Storage::fp32; }
  /// Logits of a slice that is here, without padding.
  std::uint64_t valid(Index slice) const {
    Index const size = m_config.padded_vocab() / m_options.slices.blocks;
    Index const first = (m_options.slices.first() + slice) * size;
    return count_of(rows() * std::clamp<Index>(m_config.vocab - first, 0, size));
  }
  /// Target, maximum and sums of every row.
  std::uint64_t sums_bytes() const { return count_of(rows()) * (token_bytes + sizeof(float) + 2 * sizeof(double)); }
  std::uint64_t size(Activation what) const {
    return count_of(extents_of(what, m_config, m_shape, m_storage.values, m_options).elements());
  }
  std::uint64_t size(MaybeTensor tensor) const {
    if (!tensor) return 0;
    auto const [rows, columns] = shape_of_slice(*tensor);
    return count_of(rows * columns);
  }
  std::uint64_t mask_bytes(Activation mask) const { return m_options.keeps_masks() ? size(mask) : 0; }
  std::uint64_t feature_sums_bytes() const { return size(Activation::feature_sums) * sizeof(double); }
  bool adds_norm_blocks() const { return m_options.shares_positions() && m_options.slices.count() > 1; }
  /// Mean and rstd of every row.
  std::uint64_t statistics_bytes(LayerNorm const& norm) const {
    return (size(norm.mean) + size(norm.rstd)) * sizeof(float);
  }
  std::uint64_t pairs_bytes() const {
    return size(Activation::probabilities) * m_value_bytes + mask_bytes(Activation::attention_mask);
  }
  /// Of gradients of parameters: what is added to is read, too.
  std::uint64_t written_bytes(std::uint64_t elements) const {
    return (m_mode == Write::add ? 2 : 1) * elements * m_gradient_bytes;
  }

  void count(char const* name, std::uint64_t flops, std::uint64_t bytes) {
    add({name, m_part, m_pass, {Phase::other, flops, bytes}});
  }
  void attention(char const* name, AttentionFlops* flops, std::uint64_t values, std::uint64_t other_bytes) {
    Index const heads = m_config.heads / m_options.slices.blocks;
    std::uint64_t const work = flops(m_shape.batch, m_shape.sequence, heads, m_config.head_size());
    in_every_slice(
        [&] { add({name, m_part, m_pass, {Phase::attention, work, values * m_value_bytes + other_bytes}}); });
  }
  /// The kernels of attention's provider, of every slice.
  void provided(AttentionPass pass) {
    AttentionNeed need = attention_need(m_config, m_shape, m_storage.values, m_options);
    need.drops = drops();
    in_every_slice([&] {
      for (auto const& [name, flops, bytes] : attention_kernels(m_options.attention_provider, pass, need))
        add({name, m_part, m_pass, {Phase::attention, flops, bytes}});
    });
  }
  void forward_product(Tensor weight, EpilogueKind epilogue, Storage output) {
    auto const [out, in] = shape_of_slice(weight);
    in_every_slice([&] {
      product(weight, " forward",
              {rows(), out, in, Transpose::no, Transpose::yes, Write::overwrite, m_storage.values, output, epilogue});
    });
  }
  /// Named like its weight, without the "w"; the token table's products are the head's.
  void product(Tensor weight, char const* what, GemmShape const& shape) {
    std::string name(weight == Tensor::wte ? "head" : to_string(weight));
    if (weight != Tensor::wte) name.pop_back();
    add({name + what, m_part, m_pass, {Phase::gemm, shape.flops(), shape.bytes()}, shape});
  }
  void add(KernelUse use) {
    bool const of_block = m_part == PartKind::attention || m_part == PartKind::mlp;
    use.count = m_times * (of_block && !m_each_once ? m_config.layers : 1);
    m_uses.push_back(std::move(use));
  }

  GptConfig m_config;
  MicroBatchShape m_shape;
  GptOptions m_options;
  ModelStorage m_storage;
  Write m_mode;
  bool m_trains;
  bool m_each_once = false; ///< and not for all parts of a kind
  Index m_chunks = 1;       ///< of rows, of which a piece has one
  std::int64_t m_times = 1; ///< that a kernel starts
  Recompute m_how = Recompute::none;
  std::uint64_t m_rows, m_channels, m_value_bytes, m_gradient_bytes;
  PartKind m_part = PartKind::embed;
  Pass m_pass = Pass::forward;
  std::vector<KernelUse> m_uses;
};

void describe_evaluation(CountedKernels& kernels) {
  for (PartKind const part : part_kinds) kernels.describe(part, Pass::forward);
  kernels.describe(PartKind::head, Pass::loss);
}

} // namespace

std::vector<KernelUse> evaluation_kernels(GptConfig const& config, MicroBatchShape shape, GptOptions const& options,
                                          ModelStorage storage) {
  CountedKernels kernels(config, shape, options, storage, Write::overwrite, false);
  describe_evaluation(kernels);
  return kernels.take();
}

std::vector<KernelUse> training_kernels(GptConfig const& config, MicroBatchShape shape, GptOptions const& options,
                                        Write mode, ModelStorage storage) {
  CountedKernels kernels(config, shape, options, storage, mode, true);
  describe_evaluation(kernels);
  for (PartKind const part : {PartKind::head, PartKind::mlp, PartKind::attention, PartKind::embed})
    kernels.describe(part, Pass::backward);
  return kernels.take();
}

std::vector<KernelUse> part_kernels(PartPass const& what, GptConfig const& config, MicroBatchShape shape,
                                    GptOptions const& options, ModelStorage storage) {
  CountedKernels kernels(config, shape, options, storage);
  kernels.describe(what);
  return kernels.take();
}

} // namespace trainstone
