#include "model/part_steps.hpp"

#include "core/error.hpp"

#include <array>

namespace trainstone::Impl {

namespace {

using enum Activation;
using enum Tensor;
using Site = DropoutSite;
using Steps = std::span<PartStep const>;

constexpr LayerNorm first_norm{ln1w, ln1b, ln1, ln1_mean, ln1_rstd};
constexpr LayerNorm second_norm{ln2w, ln2b, ln2, ln2_mean, ln2_rstd};
constexpr LayerNorm last_norm{lnfw, lnfb, lnf, lnf_mean, lnf_rstd};

// Ranks that share positions: a rank computes a norm of its own rows, and products read all rows.

/// Whether all rows of a norm are kept; those of head's always are.
bool keeps_all_rows(PartKernels const& k, LayerNorm const& norm) {
  return norm.out == lnf || k.options().keeps_gathered();
}

/// The norm, with the memory of its own rows. Where all rows are kept, own rows are needed for a moment only.
LayerNorm own(PartKernels const& k, LayerNorm norm) {
  if (k.options().shares_positions() && keeps_all_rows(k, norm)) norm.out = normed;
  return norm;
}

// Ranks that share features: a norm needs sums over the features of all of them, and so does a product that reads
// features of the stream. Behind every such product, a step of its own goes on when the sum is there.

bool cuts_features(PartKernels const& k) { return k.options().slices.cut_features(); }
/// Whether sums over slices or features have kernels of their own.
bool cuts(PartKernels const& k) { return k.options().slices.cuts() || cuts_features(k); }

void place_rows(PartKernels& k, LayerNorm const& norm) {
  if (k.options().shares_positions()) k.place(own(k, norm).out, gathered);
}

/// All rows of a norm's output, of which those of other ranks were gathered; to keep them they are copied.
Activation all_rows(PartKernels& k, LayerNorm const& norm) {
  if (!k.options().shares_positions()) return norm.out;
  if (!keeps_all_rows(k, norm)) return gathered;
  k.keep(gathered, norm.out);
  return norm.out;
}

// Forward.

/// \return the bias that is still to be added to the branch: with dropout it is added before
MaybeTensor drop_branch(PartKernels& k, Site site, Tensor bias, Activation mask) {
  if (!k.drops()) return bias;
  k.drop(site, bias, branch, mask);
  return {};
}

void look_up(PartKernels& k) {
  if (k.options().slices.cuts())
    k.look_up(branch);
  else
    k.embed(embedded);
}

void complete_embedded(PartKernels& k) {
  if (k.options().slices.cuts()) {
    k.complete(branch);
    k.add_positions(branch, embedded);
  }
  if (k.drops()) k.drop(Site::embedded, {}, embedded, embedded_mask);
}

constexpr std::array embed_forward{PartStep{look_up}, PartStep{complete_embedded, PassCut::if_shared}};

void normalize(PartKernels& k, Activation x, LayerNorm const& norm) {
  if (cuts_features(k)) return k.feature_sums(x);
  k.norm(x, own(k, norm));
  place_rows(k, norm);
}

/// When the sums are there.
template <Activation x, LayerNorm const& norm>
void finish_norm(PartKernels& k) {
  if (cuts_features(k)) k.norm_of_sums(x, norm);
}

void normalize_first(PartKernels& k) { normalize(k, stream, first_norm); }

void project_qkv(PartKernels& k) {
  bool const adds_up = cuts_features(k);
  k.linear(all_rows(k, first_norm), qkvw, adds_up ? MaybeTensor() : qkvb, adds_up ? d_qkv : qkv);
}

void attend(PartKernels& k) {
  if (cuts_features(k)) k.add_bias(d_qkv, qkvb, qkv);
  k.attend();
}

void project_attention(PartKernels& k) { k.linear(attention, attprojw, {}, branch); }

/// The norm that mlp begins with is one kernel with the residual.
void add_attention(PartKernels& k) {
  k.complete(branch);
  MaybeTensor const bias = drop_branch(k, Site::attproj, attprojb, attproj_mask);
  if (!cuts_features(k)) return k.add_and_norm(stream, branch, bias, middle, own(k, second_norm));
  k.add(stream, branch, bias, middle);
  k.feature_sums(middle);
}

constexpr std::array attention_forward{PartStep{normalize_first},
                                       PartStep{finish_norm<stream, first_norm>, PassCut::if_features_shared},
                                       PartStep{project_qkv, PassCut::if_positions_shared},
                                       PartStep{attend, PassCut::if_features_shared},
                                       PartStep{project_attention, PassCut::never, StepRows::in_chunks},
                                       PartStep{add_attention, PassCut::always},
                                       PartStep{finish_norm<middle, second_norm>, PassCut::if_features_shared}};

void place_second_norm(PartKernels& k) { place_rows(k, second_norm); }

void expand(PartKernels& k) {
  if (cuts_features(k)) return k.linear(ln2, fcw, {}, d_fc);
  k.linear_gelu(all_rows(k, second_norm), fcw, fcb, fc, gelu);
}

void finish_expanding(PartKernels& k) {
  if (cuts_features(k)) k.bias_gelu(d_fc, fcb, fc, gelu);
}

void project_mlp(PartKernels& k) { k.linear(gelu, fcprojw, {}, branch); }

void add_mlp(PartKernels& k) {
  k.complete(branch);
  MaybeTensor const bias = drop_branch(k, Site::fcproj, fcprojb, fcproj_mask);
  k.add(middle, branch, bias, output);
}

constexpr std::array mlp_forward{PartStep{place_second_norm}, PartStep{expand, PassCut::if_positions_shared},
                                 PartStep{finish_expanding, PassCut::if_features_shared},
                                 PartStep{project_mlp, PassCut::never, StepRows::in_chunks},
                                 PartStep{add_mlp, PassCut::always}};

void normalize_last(PartKernels& k) { normalize(k, stream, last_norm); }

void make_logits(PartKernels& k) {
  Activation const rows = all_rows(k, last_norm);
  if (!k.options().splits_loss()) k.linear(rows, wte, {}, logits);
}

void have_logits(PartKernels& k) {
  if (cuts_features(k) && !k.options().splits_loss()) k.summed(logits);
}

constexpr std::array head_forward{
    PartStep{normalize_last}, PartStep{finish_norm<stream, last_norm>, PassCut::if_features_shared},
    PartStep{make_logits, PassCut::if_positions_shared}, PartStep{have_logits, PassCut::if_features_shared}};

// The loss.

void logits_of_chunk(PartKernels& k) {
  if (k.options().splits_loss()) k.linear(lnf, wte, {}, logits);
}

void whole_loss(PartKernels& k) {
  logits_of_chunk(k);
  k.loss();
}

void maximum_of_logits(PartKernels& k) {
  if (!cuts_features(k)) logits_of_chunk(k);
  if (cuts_features(k) && k.options().splits_loss()) k.summed(logits);
  k.loss_maximum();
}

void sums_of_logits(PartKernels& k) { k.loss_sums(); }

void loss_of_sums(PartKernels& k) { k.loss_of_sums(); }

constexpr std::array uncut_loss{PartStep{whole_loss}};
constexpr std::array sliced_loss{PartStep{maximum_of_logits}, PartStep{sums_of_logits, PassCut::if_shared},
                                 PartStep{loss_of_sums, PassCut::if_shared}};
/// In chunks, of ranks that share features.
constexpr std::array summed_loss{PartStep{logits_of_chunk}, PartStep{maximum_of_logits, PassCut::always},
                                 PartStep{sums_of_logits, PassCut::if_shared},
                                 PartStep{loss_of_sums, PassCut::if_shared}};

// What a block computes again: attention all of its forward, mlp but for its last product, which nobody reads.

constexpr std::array mlp_again{PartStep{place_second_norm}, PartStep{expand, PassCut::if_positions_shared},
                               PartStep{finish_expanding, PassCut::if_features_shared}};

void attend_again(PartKernels& k) { k.attention_probabilities(); }

constexpr std::array probabilities_again{PartStep{attend_again}};

// Backward. The stream's gradient passes both halves of a block unchanged (residual). Each half adds the gradient
// through its own branch. The branch's gradient is the stream's. With dropout it is 0 where an element was dropped.

/// The gradient of what a half adds to the stream, and its rows that products read.
Activation d_added(PartKernels const& k) { return k.drops() ? branch : d_stream; }
Activation rows_of_d_added(PartKernels const& k) { return k.options().shares_positions() ? gathered : d_added(k); }

void drop_branch_backward(PartKernels& k, Site site, Activation mask) {
  if (k.drops()) k.drop_backward(site, mask, d_stream, d_added(k));
  if (k.options().shares_positions()) k.place(d_added(k), gathered);
}

/// The rows of a norm's output that products read in backward.
Activation rows_again(PartKernels const& k, LayerNorm const& norm) {
  return k.options().shares_positions() && !keeps_all_rows(k, norm) ? gathered_again : norm.out;
}

/// They come while the gradient goes back through two products.
void place_again(PartKernels& k, LayerNorm const& norm) {
  if (rows_again(k, norm) == gathered_again) k.place(norm.out, gathered_again);
}

// The gradients of a norm and of its input.

/// A norm, what it is of, and how that gets its gradient.
struct NormedStream {
  LayerNorm norm;
  Activation x;
  Write d_x_mode;
};

constexpr NormedStream of_attention{first_norm, stream, Write::add}, of_mlp{second_norm, middle, Write::add},
    of_head{last_norm, stream, Write::overwrite};

/// Without slices one kernel does all.
template <NormedStream const& of>
void sums_of_norm(PartKernels& k) {
  k.complete(branch);
  if (cuts_features(k)) k.feature_sums_backward(branch, of.x, of.norm);
  if (cuts(k))
    k.norm_sums(branch, of.x, of.norm);
  else
    k.norm_backward(branch, of.x, of.norm, d_stream, of.d_x_mode);
}

template <NormedStream const& of>
void norm_input(PartKernels& k) {
  if (cuts_features(k))
    k.norm_input_of_sums(branch, of.x, of.norm, d_stream, of.d_x_mode);
  else if (cuts(k))
    k.norm_input_gradient(branch, of.x, of.norm, d_stream, of.d_x_mode);
}

template <NormedStream const& of>
void norm_parameters(PartKernels& k) {
  if (cuts(k)) k.norm_parameters(of.norm);
}

void logits_input_backward(PartKernels& k) { k.input_gradient(logits, wte, {}, branch); }

void logits_weight_backward(PartKernels& k) { k.weight_gradient(logits, lnf, wte, {}); }

constexpr std::size_t head_steps_in_chunks = 2;
constexpr std::array head_backward{
    PartStep{logits_input_backward}, PartStep{logits_weight_backward, PassCut::if_shared},
    PartStep{sums_of_norm<of_head>, PassCut::if_shared}, PartStep{norm_input<of_head>, PassCut::if_rows_shared},
    PartStep{norm_parameters<of_head>, PassCut::if_positions_shared}};

void drop_fcproj_backward(PartKernels& k) { drop_branch_backward(k, Site::fcproj, fcproj_mask); }

void fcproj_weight_backward(PartKernels& k) {
  k.weight_gradient(rows_of_d_added(k), gelu, fcprojw, fcprojb);
  place_again(k, second_norm);
}

void fcproj_input_backward(PartKernels& k) {
  k.input_gradient(rows_of_d_added(k), fcprojw, cuts_features(k) ? MaybeActivation() : fc, d_fc);
}

void gelu_input_backward(PartKernels& k) {
  if (cuts_features(k)) k.gelu_backward(fc, d_fc);
}

void fc_input_backward(PartKernels& k) { k.input_gradient(d_fc, fcw, {}, branch); }

void fc_weight_backward(PartKernels& k) { k.weight_gradient(d_fc, rows_again(k, second_norm), fcw, fcb); }

constexpr std::array mlp_backward{PartStep{drop_fcproj_backward},
                                  PartStep{fcproj_weight_backward, PassCut::if_positions_shared},
                                  PartStep{fcproj_input_backward, PassCut::always},
                                  PartStep{gelu_input_backward, PassCut::if_features_shared},
                                  PartStep{fc_input_backward, PassCut::never, StepRows::in_chunks},
                                  PartStep{fc_weight_backward, PassCut::if_shared},
                                  PartStep{sums_of_norm<of_mlp>, PassCut::always},
                                  PartStep{norm_input<of_mlp>, PassCut::if_rows_shared},
                                  PartStep{norm_parameters<of_mlp>, PassCut::if_positions_shared}};

void drop_attproj_backward(PartKernels& k) { drop_branch_backward(k, Site::attproj, attproj_mask); }

void attproj_weight_backward(PartKernels& k) {
  k.weight_gradient(rows_of_d_added(k), attention, attprojw, attprojb);
  place_again(k, first_norm);
}

void attproj_input_backward(PartKernels& k) { k.input_gradient(rows_of_d_added(k), attprojw, {}, d_attention); }

void attend_backward(PartKernels& k) {
  if (cuts_features(k)) k.summed(d_attention);
  k.attend_backward(d_attention);
}

void qkv_input_backward(PartKernels& k) { k.input_gradient(d_qkv, qkvw, {}, branch); }

void qkv_weight_backward(PartKernels& k) { k.weight_gradient(d_qkv, rows_again(k, first_norm), qkvw, qkvb); }

constexpr std::array attention_backward{PartStep{drop_attproj_backward},
                                        PartStep{attproj_weight_backward, PassCut::if_positions_shared},
                                        PartStep{attproj_input_backward, PassCut::always},
                                        PartStep{attend_backward, PassCut::if_features_shared},
                                        PartStep{qkv_input_backward, PassCut::never, StepRows::in_chunks},
                                        PartStep{qkv_weight_backward, PassCut::if_shared},
                                        PartStep{sums_of_norm<of_attention>, PassCut::always},
                                        PartStep{norm_input<of_attention>, PassCut::if_rows_shared},
                                        PartStep{norm_parameters<of_attention>, PassCut::if_positions_shared}};

void drop_embedded_backward(PartKernels& k) {
  if (k.drops()) k.drop_backward(Site::embedded, embedded_mask, d_stream, d_stream);
  if (k.options().shares_positions()) k.place(d_stream, gathered);
}

void embed_rows_backward(PartKernels& k) { k.embed_backward(k.options().shares_positions() ? gathered : d_stream); }

constexpr std::array embed_backward{PartStep{drop_embedded_backward},
                                    PartStep{embed_rows_backward, PassCut::if_positions_shared}};

Steps forward_steps(PartKind kind) {
  switch (kind) {
  case PartKind::embed: return embed_forward;
  case PartKind::attention: return attention_forward;
  case PartKind::mlp: return mlp_forward;
  case PartKind::head: return head_forward;
  }
  throw Error(fmt::format("no kind of part {}", static_cast<int>(kind)));
}

Steps recompute_steps(PartKind kind, Recompute how) {
  bool const attends = kind == PartKind::attention;
  if (how == Recompute::selective && attends) return probabilities_again;
  if (how == Recompute::full && attends) return attention_forward;
  if (how == Recompute::full && kind == PartKind::mlp) return mlp_again;
  return {};
}

PassSteps backward_steps(PartKind kind) {
  switch (kind) {
  case PartKind::embed: return {embed_backward};
  case PartKind::attention: return {attention_backward};
  case PartKind::mlp: return {mlp_backward};
  case PartKind::head: return {head_backward, head_steps_in_chunks};
  }
  throw Error(fmt::format("no kind of part {}", static_cast<int>(kind)));
}

} // namespace

PassSteps steps_of(Pass pass, PartKind kind, GptOptions const& options, Recompute how) {
  TensorSlices const& slices = options.slices;
  Steps const loss = slices.cut_features() && options.splits_loss() ? Steps(summed_loss)
                     : slices.cuts() || slices.cut_features()       ? Steps(sliced_loss)
                                                                    : Steps(uncut_loss);
  switch (pass) {
  case Pass::forward: return {forward_steps(kind)};
  case Pass::loss: return {loss, loss.size()};
  case Pass::recompute: return {recompute_steps(kind, how)};
  case Pass::backward: return backward_steps(kind);
  }
  throw Error(fmt::format("no pass {}", static_cast<int>(pass)));
}

} // namespace trainstone::Impl
