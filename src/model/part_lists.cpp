#include "model/part_lists.hpp"

#include "model/part_kernels.hpp"

namespace trainstone {

namespace {

class ListedKernels final : public PartKernels {
public:
  explicit ListedKernels(GptOptions const& options) : m_options(options) {}

  std::set<Activation> const& activations() const { return m_activations; }
  std::vector<Tensor> const& gradients() const { return m_gradients; }

  bool drops() const override { return m_options.dropout > 0; }
  void embed(Activation out) override { write({out}); }
  void norm(Activation, LayerNorm const& norm) override { write({norm.out, norm.mean, norm.rstd}); }
  void add_and_norm(Activation x, Activation branch, MaybeTensor bias, Activation sum, LayerNorm const& norm) override {
    add(x, branch, bias, sum);
    this->norm(sum, norm);
  }
  void add(Activation, Activation, MaybeTensor, Activation sum) override { write({sum}); }
  void linear(Activation, Tensor, MaybeTensor, Activation y) override { write({y}); }
  void linear_gelu(Activation, Tensor, Tensor, Activation pre, Activation y) override { write({pre, y}); }
  void drop(DropoutSite, MaybeTensor, Activation x, Activation mask) override {
    write({x});
    if (m_options.keeps_masks()) write({mask});
  }
  void attend() override {
    write({Activation::attention});
    bool const materialized = m_options.attention == AttentionKind::materialized;
    write({materialized ? Activation::probabilities : Activation::log_sum_exp});
    if (materialized && m_options.keeps_masks()) write({Activation::attention_mask});
  }
  void loss() override { write({Activation::logits, Activation::losses}); }

  void embed_backward(Activation) override { m_gradients.insert(m_gradients.end(), {Tensor::wte, Tensor::wpe}); }
  void drop_backward(DropoutSite, Activation, Activation, Activation d_x) override { write({d_x}); }
  void input_gradient(Activation, Tensor, MaybeActivation, Activation d_x) override { write({d_x}); }
  void weight_gradient(Activation, Activation, Tensor weight, MaybeTensor bias) override {
    m_gradients.push_back(weight);
    if (bias) m_gradients.push_back(*bias);
  }
  void norm_backward(Activation, Activation, LayerNorm const& norm, Activation d_x, Write) override {
    write({d_x});
    m_gradients.insert(m_gradients.end(), {norm.gain, norm.bias});
  }
  void attend_backward(Activation) override { write({Activation::d_qkv}); }

private:
  void write(std::initializer_list<Activation> written) {
    for (Activation const what : written) m_activations.insert(what == Activation::d_branch ? Activation::d_qkv : what);
  }

  GptOptions m_options;
  std::set<Activation> m_activations;
  std::vector<Tensor> m_gradients;
};

} // namespace

std::set<Activation> activations_written(GptOptions const& options) {
  ListedKernels kernels(options);
  for (PartKind const kind : part_kinds) {
    describe_forward(kind, kernels);
    for (DescribePiece const describe : backward_pieces(kind)) describe(kernels);
  }
  describe_loss(kernels);
  return kernels.activations();
}

std::vector<std::vector<Tensor>> gradients_written(PartKind kind) {
  std::vector<std::vector<Tensor>> by_piece;
  for (DescribePiece const describe : backward_pieces(kind)) {
    ListedKernels kernels({});
    describe(kernels);
    by_piece.push_back(kernels.gradients());
  }
  return by_piece;
}

} // namespace trainstone
