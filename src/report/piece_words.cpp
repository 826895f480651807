#include "report/piece_words.hpp"

#include <fmt/format.h>

#include <utility>

namespace trainstone {

namespace {

std::string with_bias(Tensor weight, MaybeTensor bias) {
  return std::string(to_string(weight)) + (bias ? fmt::format(", {}", to_string(*bias)) : "");
}

/// Writes down every call.
class PieceWords final : public PartKernels {
public:
  explicit PieceWords(GptOptions const& options) : m_options(options) {}

  std::string const& words() const { return m_words; }

  bool drops() const override { return m_options.dropout > 0; }
  GptOptions const& options() const override { return m_options; }
  void embed(Activation) override { say("look up rows of wte, add rows of wpe"); }
  void look_up(Activation) override { say("look up the rows of wte that are here"); }
  void add_positions(Activation, Activation) override { say("add rows of wpe"); }
  void complete(Activation) override {
    if (m_options.shares_positions()) say("take the own rows");
  }
  void summed(Activation) override { say("the sum is there"); }
  void place(Activation own, Activation) override { say("put the own rows of {} among all", own_rows_of(own)); }
  void keep(Activation, Activation) override { say("keep all rows"); }
  void norm(Activation, LayerNorm const& norm) override { say("layer norm {}", words_of(norm)); }
  void feature_sums(Activation) override { say("sums over the features here"); }
  void norm_of_sums(Activation x, LayerNorm const& norm) override { this->norm(x, norm); }
  void add_and_norm(Activation x, Activation branch, MaybeTensor bias, Activation sum, LayerNorm const& norm) override {
    add(x, branch, bias, sum);
    this->norm(sum, norm);
  }
  void add(Activation, Activation, MaybeTensor bias, Activation) override {
    say("add {}the residual stream", bias ? fmt::format("{} and ", to_string(*bias)) : "");
  }
  void linear(Activation, Tensor weight, MaybeTensor bias, Activation) override {
    say("product with {}", with_bias(weight, bias));
  }
  void linear_gelu(Activation, Tensor weight, Tensor bias, Activation, Activation) override {
    say("product with {}", with_bias(weight, bias));
    say("GELU");
  }
  void add_bias(Activation, Tensor bias, Activation) override { say("add {}", to_string(bias)); }
  void bias_gelu(Activation, Tensor bias, Activation, Activation) override { say("add {}; GELU", to_string(bias)); }
  void gelu_backward(Activation, Activation) override { say("GELU backward"); }
  void drop(DropoutSite, MaybeTensor bias, Activation, Activation) override {
    say("{}dropout", bias ? fmt::format("add {}, ", to_string(*bias)) : "");
  }
  void attend() override { say("attention"); }
  void attention_probabilities() override { say("probabilities of attention"); }
  void loss() override { say("losses and the gradient of the logits"); }
  void loss_maximum() override { say("maximum of the logits that are here"); }
  void loss_sums() override { say("sums of their exponentials; the target's logit"); }
  void loss_of_sums() override { say("losses and the gradient of the logits that are here"); }
  void embed_backward(Activation) override { say("gradients of wte, wpe"); }
  void drop_backward(DropoutSite, Activation, Activation, Activation) override { say("dropout backward"); }
  void input_gradient(Activation, Tensor weight, MaybeActivation pre, Activation) override {
    say("gradient of the input of {}", to_string(weight));
    if (pre) say("GELU backward");
  }
  void weight_gradient(Activation, Activation, Tensor weight, MaybeTensor bias) override {
    say("gradient{} of {}", bias ? "s" : "", with_bias(weight, bias));
  }
  void norm_backward(Activation, Activation, LayerNorm const& norm, Activation, Write) override {
    say("layer norm backward, gradients of {}", words_of(norm));
  }
  void feature_sums_backward(Activation, Activation, LayerNorm const&) override { say("sums over the features here"); }
  void norm_input_of_sums(Activation d_y, Activation x, LayerNorm const& norm, Activation d_x, Write mode) override {
    norm_backward(d_y, x, norm, d_x, mode);
  }
  void norm_input_gradient(Activation d_y, Activation x, LayerNorm const& norm, Activation d_x, Write mode) override {
    if (!m_options.shares_positions()) return norm_backward(d_y, x, norm, d_x, mode);
    say("layer norm backward");
  }
  void norm_sums(Activation, Activation, LayerNorm const& norm) override {
    if (m_options.shares_positions()) say("sums over the own rows for gradients of {}", words_of(norm));
  }
  void norm_parameters(LayerNorm const& norm) override {
    if (m_options.shares_positions()) say("gradients of {}", words_of(norm));
  }
  void attend_backward(Activation) override { say("attention backward"); }

private:
  static char const* own_rows_of(Activation own) {
    switch (own) {
    case Activation::d_stream:
    case Activation::branch: return "the gradient";
    default: return "the norm";
    }
  }
  static std::string words_of(LayerNorm const& norm) { return with_bias(norm.gain, norm.bias); }

  template <class... Values>
  void say(fmt::format_string<Values...> text, Values&&... values) {
    m_words += (m_words.empty() ? "" : "; ") + fmt::format(text, std::forward<Values>(values)...);
  }

  GptOptions m_options;
  std::string m_words;
};

} // namespace

std::string piece_words(PartPiece const& piece, GptOptions const& options) {
  PieceWords words(options);
  piece.describe(words);
  return words.words();
}

} // namespace trainstone
