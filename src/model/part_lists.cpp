#include "model/part_lists.hpp"

#include "model/part_kernels.hpp"

#include <algorithm>
#include <utility>

namespace trainstone {

namespace {

class ListedKernels final : public PartKernels {
public:
  explicit ListedKernels(GptOptions const& options) : m_options(options) {}

  std::set<Activation> const& written() const { return m_written; }
  /// Those that were there before.
  std::set<Activation> const& read() const { return m_read; }
  std::vector<Tensor> const& gradients() const { return m_gradients; }
  PieceExchanges const& exchanges() const { return m_exchanges; }

  bool drops() const override { return m_options.dropout > 0; }
  GptOptions const& options() const override { return m_options; }
  void embed(Activation out) override { write({out}); }
  void look_up(Activation sum) override { write_sum(sum); }
  void add_positions(Activation looked_up, Activation out) override {
    read({looked_up});
    write({out});
  }
  void complete(Activation sum) override {
    m_exchanges.needs.insert(SliceExchange::sum);
    if (!m_options.shares_positions()) read({sum}); // else it becomes this rank's rows of it
    write({sum});
  }
  void summed(Activation sum) override { read_sum(sum); }
  void place(Activation own, Activation all) override {
    read({own});
    write({all});
    m_exchanges.starts.insert(gather_of(all));
  }
  void keep(Activation all, Activation kept) override {
    read({all});
    write({kept});
  }
  void norm(Activation x, LayerNorm const& norm) override {
    read({x});
    write({norm.out, norm.mean, norm.rstd});
  }
  void feature_sums(Activation x) override {
    read({x});
    write({Activation::feature_sums});
    m_exchanges.starts.insert(SliceExchange::feature_sums);
  }
  void norm_of_sums(Activation x, LayerNorm const& norm) override {
    m_exchanges.needs.insert(SliceExchange::feature_sums);
    read({Activation::feature_sums});
    this->norm(x, norm);
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
    cut_of(weight) == Split::Of::columns ? write_sum(y) : write_over_features(y);
  }
  void add_bias(Activation x, Tensor, Activation y) override {
    read_sum(x);
    write({y});
  }
  void bias_gelu(Activation x, Tensor, Activation pre, Activation y) override {
    read_sum(x);
    write({pre, y});
  }
  void gelu_backward(Activation pre, Activation d_x) override {
    read_sum(d_x);
    read({pre});
    write({d_x});
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
    write_scratch(AttentionPass::forward);
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
    m_exchanges.starts.insert(SliceExchange::loss_maximum);
  }
  void loss_sums() override {
    m_exchanges.needs.insert(SliceExchange::loss_maximum);
    m_exchanges.starts.insert(SliceExchange::loss_sums);
    read({Activation::logits, Activation::loss_maximum});
    write({Activation::logits, Activation::loss_sums});
  }
  void loss_of_sums() override {
    m_exchanges.needs.insert(SliceExchange::loss_sums);
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
    cut_of(weight) == Split::Of::columns ? write_over_features(d_x) : write_sum(d_x);
  }
  void weight_gradient(Activation d_y, Activation x, Tensor weight, MaybeTensor bias) override {
    read({d_y, x});
    m_gradients.push_back(weight);
    if (bias) m_gradients.push_back(*bias);
  }
  void norm_backward(Activation d_y, Activation x, LayerNorm const& norm, Activation d_x, Write) override {
    norm_input_gradient(d_y, x, norm, d_x, Write::overwrite);
    m_gradients.insert(m_gradients.end(), {norm.gain, norm.bias});
  }
  void feature_sums_backward(Activation d_y, Activation x, LayerNorm const& norm) override {
    read({d_y, x, norm.mean, norm.rstd});
    write({Activation::feature_sums});
    m_exchanges.starts.insert(SliceExchange::feature_sums);
  }
  void norm_input_of_sums(Activation d_y, Activation x, LayerNorm const& norm, Activation d_x, Write mode) override {
    m_exchanges.needs.insert(SliceExchange::feature_sums);
    read({Activation::feature_sums});
    norm_input_gradient(d_y, x, norm, d_x, mode);
  }
  void norm_input_gradient(Activation d_y, Activation x, LayerNorm const& norm, Activation d_x, Write) override {
    read({d_y, x, norm.mean, norm.rstd});
    write({d_x});
  }
  void norm_sums(Activation d_y, Activation x, LayerNorm const& norm) override {
    read({d_y, x, norm.mean, norm.rstd});
    write({Activation::norm_sums});
    if (m_options.shares_positions()) m_exchanges.starts.insert(SliceExchange::norm_sums);
  }
  void norm_parameters(LayerNorm const& norm) override {
    read({Activation::norm_sums});
    if (m_options.shares_positions()) m_exchanges.needs.insert(SliceExchange::norm_sums);
    m_gradients.insert(m_gradients.end(), {norm.gain, norm.bias});
  }
  void attend_backward(Activation d_out) override {
    read({Activation::qkv, is_flash() ? Activation::log_sum_exp : Activation::probabilities, d_out});
    if (is_flash()) read({Activation::attention});
    if (!is_flash() && m_options.keeps_masks()) read({Activation::attention_mask});
    write_scratch(AttentionPass::backward);
    write({Activation::d_qkv});
  }

private:
  bool is_flash() const { return m_options.attention == AttentionKind::flash; }
  static Activation in_memory(Activation what) { return what == Activation::d_attention ? Activation::d_fc : what; }
  void write(std::initializer_list<Activation> all) {
    for (Activation const what : all) m_written.insert(in_memory(what));
  }
  /// If attention's provider needs it.
  void write_scratch(AttentionPass pass) {
    if (is_flash() && needs_attention_scratch(m_options.attention_provider, pass)) write({Activation::scratch});
  }
  /// A sum over slices.
  void write_sum(Activation sum) {
    write({sum});
    if (m_options.slices.cuts()) write({Activation::partial});
    m_exchanges.starts.insert(SliceExchange::sum);
  }
  /// A product whose input features ranks may share.
  void write_over_features(Activation sum) {
    write({sum});
    if (m_options.slices.cut_features()) m_exchanges.starts.insert(exchange_of(sum));
  }
  void read_sum(Activation sum) {
    m_exchanges.needs.insert(exchange_of(sum));
    read({sum});
  }
  static SliceExchange exchange_of(Activation sum) {
    switch (sum) {
    case Activation::d_qkv: return SliceExchange::qkv;
    case Activation::d_fc: return SliceExchange::hidden;
    case Activation::d_attention: return SliceExchange::heads;
    case Activation::logits: return SliceExchange::logits;
    default: throw Error(fmt::format("activation {} is no sum over features", static_cast<int>(sum)));
    }
  }
  static bool is_gathered(Activation what) {
    return what == Activation::gathered || what == Activation::gathered_again;
  }
  static SliceExchange gather_of(Activation all) {
    return all == Activation::gathered ? SliceExchange::gather : SliceExchange::gather_again;
  }
  void read(std::initializer_list<Activation> all) {
    for (Activation const what : all)
      if (is_gathered(what)) m_exchanges.needs.insert(gather_of(what));
    for (Activation const what : all)
      if (!m_written.contains(in_memory(what))) m_read.insert(in_memory(what));
  }

  GptOptions m_options;
  std::set<Activation> m_written, m_read;
  std::vector<Tensor> m_gradients;
  PieceExchanges m_exchanges;
};

ListedKernels listed(Pass pass, PartKind kind, GptOptions const& options, Recompute how = Recompute::none) {
  ListedKernels kernels(options);
  for (PartPiece const& piece : part_pieces(pass, kind, options, how)) piece.describe(kernels);
  return kernels;
}

std::set<Activation> without_work_space(std::set<Activation> all) {
  std::erase_if(all, [](Activation what) { return is_work_space(what) && what != Activation::stream; });
  return all;
}

} // namespace

std::set<Activation> activations_written(PartKind kind, GptOptions const& options) {
  std::set<Activation> written;
  for (Pass const pass : {Pass::forward, Pass::backward})
    written.merge(std::set(listed(pass, kind, options).written()));
  if (kind == PartKind::head) written.merge(std::set(listed(Pass::loss, kind, options).written()));
  return written;
}

std::set<Activation> kept_for_backward(PartKind kind, GptOptions const& options) {
  std::set<Activation> written = listed(Pass::forward, kind, options).written();
  if (kind == PartKind::head) // the loss leaves the gradient of the logits
    written.merge(std::set(listed(Pass::loss, kind, options).written()));
  std::set<Activation> read, kept;
  for (PartKind const any : part_kinds) read.merge(std::set(listed(Pass::backward, any, options).read()));
  if (read.contains(Activation::stream)) read.insert({Activation::embedded, Activation::output});
  for (Activation const what : written)
    if (!is_work_space(what) && read.contains(what)) kept.insert(what);
  return kept;
}

std::set<Activation> recomputed(PartKind kind, Recompute how, GptOptions const& options) {
  return without_work_space(listed(Pass::recompute, kind, options, how).written());
}

std::set<Activation> recomputed(Recompute how, GptOptions const& options) {
  std::set<Activation> all;
  for (PartKind const kind : {PartKind::attention, PartKind::mlp}) all.merge(recomputed(kind, how, options));
  return all;
}

std::set<Activation> read_by_recompute(PartKind kind, Recompute how, GptOptions const& options) {
  return without_work_space(listed(Pass::recompute, kind, options, how).read());
}

std::set<Activation> read_by_forward(PartKind kind, GptOptions const& options) {
  return without_work_space(listed(Pass::forward, kind, options).read());
}

std::set<Activation> read_by_loss(GptOptions const& options) {
  return without_work_space(listed(Pass::loss, PartKind::head, options).read());
}

std::set<Activation> read_by_backward(PartKind kind, GptOptions const& options) {
  return without_work_space(listed(Pass::backward, kind, options).read());
}

std::vector<std::vector<Tensor>> gradients_written(PartKind kind, GptOptions const& options) {
  std::vector<std::vector<Tensor>> by_piece;
  for (PartPiece const& piece : part_pieces(Pass::backward, kind, options)) {
    ListedKernels kernels(options);
    piece.describe(kernels);
    by_piece.push_back(kernels.gradients());
  }
  return by_piece;
}

std::string_view to_string(SliceExchange exchange) {
  switch (exchange) {
  case SliceExchange::sum: return "sum over slices";
  case SliceExchange::gather: return "rows";
  case SliceExchange::gather_again: return "rows again";
  case SliceExchange::norm_sums: return "sums of a norm's gradients";
  case SliceExchange::loss_maximum: return "maximum of logits";
  case SliceExchange::loss_sums: return "sums of logits";
  case SliceExchange::qkv: return "queries, keys and values";
  case SliceExchange::hidden: return "hidden layer";
  case SliceExchange::heads: return "heads";
  case SliceExchange::logits: return "logits";
  case SliceExchange::feature_sums: return "sums of a norm";
  }
  return "unknown";
}

PlacedActivation exchanged_activation(SliceExchange exchange, GptOptions const& options, Storage values) {
  auto const placed = [](Activation what) { return PlacedActivation{what, PlacedActivation::of_model}; };
  switch (exchange) {
  case SliceExchange::sum: return placed(sums_lie_apart(options, values) ? Activation::partial : Activation::branch);
  case SliceExchange::gather: return placed(Activation::gathered);
  case SliceExchange::gather_again: return placed(Activation::gathered_again);
  case SliceExchange::norm_sums: return placed(Activation::norm_sums);
  case SliceExchange::loss_maximum: return placed(Activation::loss_maximum);
  case SliceExchange::loss_sums: return placed(Activation::loss_sums);
  case SliceExchange::qkv: return placed(Activation::d_qkv);
  case SliceExchange::hidden: return placed(Activation::d_fc);
  case SliceExchange::heads: return placed(Activation::d_attention);
  case SliceExchange::logits: return placed(Activation::logits);
  case SliceExchange::feature_sums: return placed(Activation::feature_sums);
  }
  throw Error(fmt::format("no exchange {}", static_cast<int>(exchange)));
}

bool happens(SliceExchange exchange, GptOptions const& options) {
  if (is_over_features(exchange)) return options.slices.cut_features();
  if (exchange == SliceExchange::norm_sums) return options.shares_positions();
  return options.slices.are_shared();
}

Index chunks_of(SliceExchange exchange, GptOptions const& options) {
  return exchange == SliceExchange::sum && options.chunks_rows() ? options.row_chunks : 1;
}

std::set<SliceExchange> exchanges_of(ModelStage const& stage, GptOptions const& options) {
  std::set<PartKind> kinds;
  for (Part const part : parts(stage)) kinds.insert(part.kind);
  std::set<SliceExchange> all;
  for (PartKind const kind : kinds)
    for (Pass const pass : {Pass::forward, Pass::loss, Pass::backward}) {
      if (pass == Pass::loss && kind != PartKind::head) continue;
      for (PieceExchanges const& piece : piece_exchanges(pass, kind, options))
        all.insert(piece.needs.begin(), piece.needs.end());
    }
  return all;
}

/// Behind a piece the exchange starts that a later piece needs, unless a piece before that one starts it anew: it adds
/// to the sum. Of several pieces that need it, the first one waits.
std::vector<PieceExchanges> piece_exchanges(Pass pass, PartKind kind, GptOptions const& options, Recompute how) {
  std::vector<PieceExchanges> all;
  for (PartPiece const& piece : part_pieces(pass, kind, options, how)) {
    ListedKernels kernels(options);
    piece.describe(kernels);
    all.push_back(kernels.exchanges());
    all.back().row_chunk = piece.row_chunk;
    for (std::set<SliceExchange>* const some : {&all.back().needs, &all.back().starts})
      std::erase_if(*some, [&](SliceExchange exchange) { return !happens(exchange, options); });
  }
  for (SliceExchange const exchange : slice_exchanges) {
    bool is_there = false;
    for (auto piece = all.begin(); piece != all.end(); ++piece) {
      if (piece->needs.contains(exchange) && std::exchange(is_there, true)) piece->needs.erase(exchange);
      if (!piece->starts.contains(exchange)) continue;
      is_there = false;
      auto const next = std::find_if(piece + 1, all.end(), [&](PieceExchanges const& later) {
        return later.needs.contains(exchange) || later.starts.contains(exchange);
      });
      bool const is_added_to = next != all.end() && !next->needs.contains(exchange);
      if (is_added_to && !piece->row_chunk) piece->starts.erase(exchange);
    }
  }
  return all;
}

} // namespace trainstone
