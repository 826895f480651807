#include "model/part_lists.hpp"

#include "model/part_kernels.hpp"

namespace trainstone {

namespace {

class ListedKernels final : public PartKernels {
public:
  explicit ListedKernels(GptOptions const& options) : m_options(options) {}

  std::set<Activation> const& written() const { return m_written; }
  /// Those that were there before.
  std::set<Activation> const& read() const { return m_read; }
  std::vector<Tensor> const& gradients() const { return m_gradients; }

  bool drops() const override { return m_options.dropout > 0; }
  bool splits_loss() const override { return m_options.splits_loss(); }
  bool has_slices() const override { return m_options.slices.cuts(); }
  void embed(Activation out) override { write({out}); }
  void look_up(Activation sum) override { write_sum(sum); }
  void add_positions(Activation looked_up, Activation out) override {
    read({looked_up});
    write({out});
  }
  void complete(Activation sum) override {
    read({sum});
    write({sum});
  }
  void norm(Activation x, LayerNorm const& norm) override {
    read({x});
    write({norm.out, norm.mean, norm.rstd});
  }
  void add_and_norm(Activation x, Activation branch, MaybeTensor bias, Activation sum, LayerNorm const& norm) override {
    add(x, branch, bias, sum);
    this->norm(sum, norm);
  }
  void add(Activation x, Activation branch, MaybeTensor, Activation sum) override {
    read({x, branch});
    write({sum});
  }
  void linear(Activation x, Tensor weight, MaybeTensor, Activation y) override {
    read({x});
    cut_of(weight) == Split::Of::columns ? write_sum(y) : write({y});
  }
  void linear_gelu(Activation x, Tensor, Tensor, Activation pre, Activation y) override {
    read({x});
    write({pre, y});
  }
  void drop(DropoutSite, MaybeTensor, Activation x, Activation mask) override {
    read({x});
    write({x});
    if (m_options.keeps_masks()) write({mask});
  }
  void attend() override {
    read({Activation::qkv});
    write({Activation::attention, is_flash() ? Activation::log_sum_exp : Activation::probabilities});
    if (!is_flash() && m_options.keeps_masks()) write({Activation::attention_mask});
  }
  void attention_probabilities() override {
    read({Activation::qkv});
    write({Activation::probabilities});
    if (m_options.keeps_masks()) write({Activation::attention_mask});
  }
  void loss() override {
    read({Activation::logits});
    write({Activation::logits, Activation::losses});
  }
  void loss_maximum() override {
    read({Activation::logits});
    write({Activation::loss_maximum});
  }
  void loss_sums() override {
    read({Activation::logits, Activation::loss_maximum});
    write({Activation::logits, Activation::loss_sums});
  }
  void loss_of_sums() override {
    read({Activation::logits, Activation::loss_maximum, Activation::loss_sums});
    write({Activation::logits, Activation::losses});
  }

  void embed_backward(Activation d_out) override {
    read({d_out});
    m_gradients.insert(m_gradients.end(), {Tensor::wte, Tensor::wpe});
  }
  void drop_backward(DropoutSite, Activation mask, Activation d_y, Activation d_x) override {
    read({d_y});
    if (m_options.keeps_masks()) read({mask});
    write({d_x});
  }
  void input_gradient(Activation d_y, Tensor weight, MaybeActivation pre, Activation d_x) override {
    read({d_y});
    if (pre) read({*pre});
    cut_of(weight) == Split::Of::columns ? write({d_x}) : write_sum(d_x);
  }
  void weight_gradient(Activation d_y, Activation x, Tensor weight, MaybeTensor bias) override {
    read({d_y, x});
    m_gradients.push_back(weight);
    if (bias) m_gradients.push_back(*bias);
  }
  void norm_backward(Activation d_y, Activation x, LayerNorm const& norm, Activation d_x, Write) override {
    read({d_y, x, norm.mean, norm.rstd});
    write({d_x});
    if (has_slices()) write({Activation::norm_sums});
    m_gradients.insert(m_gradients.end(), {norm.gain, norm.bias});
  }
  void attend_backward(Activation d_out) override {
    read({Activation::qkv, is_flash() ? Activation::log_sum_exp : Activation::probabilities, d_out});
    if (is_flash()) read({Activation::attention});
    if (!is_flash() && m_options.keeps_masks()) read({Activation::attention_mask});
    write({Activation::d_qkv});
  }

private:
  bool is_flash() const { return m_options.attention == AttentionKind::flash; }
  static Activation in_memory(Activation what) { return what == Activation::d_attention ? Activation::d_fc : what; }
  void write(std::initializer_list<Activation> all) {
    for (Activation const what : all) m_written.insert(in_memory(what));
  }
  /// A sum over slices.
  void write_sum(Activation sum) {
    write({sum});
    if (has_slices()) write({Activation::partial});
  }
  void read(std::initializer_list<Activation> all) {
    for (Activation const what : all)
      if (!m_written.contains(in_memory(what))) m_read.insert(in_memory(what));
  }

  GptOptions m_options;
  std::set<Activation> m_written, m_read;
  std::vector<Tensor> m_gradients;
};

std::set<Activation> without_work_space(std::set<Activation> all) {
  std::erase_if(all, [](Activation what) { return is_work_space(what) && what != Activation::stream; });
  return all;
}

} // namespace

std::set<Activation> activations_written(PartKind kind, GptOptions const& options) {
  ListedKernels kernels(options);
  describe_forward(kind, kernels);
  for (DescribePiece const describe : backward_pieces(kind, options)) describe(kernels);
  if (kind == PartKind::head) describe_loss(kernels);
  return kernels.written();
}

std::set<Activation> kept_for_backward(PartKind kind, GptOptions const& options) {
  ListedKernels forward(options), backward(options);
  describe_forward(kind, forward);
  if (kind == PartKind::head) describe_loss(forward); // leaves the gradient of the logits
  for (PartKind const any : part_kinds)
    for (DescribePiece const describe : backward_pieces(any, options)) describe(backward);
  std::set<Activation> read = backward.read(), kept;
  if (read.contains(Activation::stream)) read.insert({Activation::embedded, Activation::output});
  for (Activation const what : forward.written())
    if (!is_work_space(what) && read.contains(what)) kept.insert(what);
  return kept;
}

std::set<Activation> recomputed(PartKind kind, Recompute how, GptOptions const& options) {
  ListedKernels kernels(options);
  describe_recompute(kind, how, kernels);
  return without_work_space(kernels.written());
}

std::set<Activation> recomputed(Recompute how, GptOptions const& options) {
  std::set<Activation> all;
  for (PartKind const kind : {PartKind::attention, PartKind::mlp}) all.merge(recomputed(kind, how, options));
  return all;
}

std::set<Activation> read_by_recompute(PartKind kind, Recompute how, GptOptions const& options) {
  ListedKernels kernels(options);
  describe_recompute(kind, how, kernels);
  return without_work_space(kernels.read());
}

std::set<Activation> read_by_forward(PartKind kind, GptOptions const& options) {
  ListedKernels kernels(options);
  describe_forward(kind, kernels);
  return without_work_space(kernels.read());
}

std::set<Activation> read_by_loss(GptOptions const& options) {
  ListedKernels kernels(options);
  describe_loss(kernels);
  return without_work_space(kernels.read());
}

std::set<Activation> read_by_backward(PartKind kind, GptOptions const& options) {
  ListedKernels kernels(options);
  for (DescribePiece const describe : backward_pieces(kind, options)) describe(kernels);
  return without_work_space(kernels.read());
}

std::vector<std::vector<Tensor>> gradients_written(PartKind kind, GptOptions const& options) {
  std::vector<std::vector<Tensor>> by_piece;
  for (DescribePiece const describe : backward_pieces(kind, options)) {
    ListedKernels kernels(options);
    describe(kernels);
    by_piece.push_back(kernels.gradients());
  }
  return by_piece;
}

} // namespace trainstone
