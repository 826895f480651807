#include "model/part_kernels.hpp"

#include "core/error.hpp"

namespace trainstone {

namespace {

using enum Activation;
using enum Tensor;
using Site = DropoutSite;

constexpr LayerNorm first_norm{ln1w, ln1b, ln1, ln1_mean, ln1_rstd};
constexpr LayerNorm second_norm{ln2w, ln2b, ln2, ln2_mean, ln2_rstd};
constexpr LayerNorm last_norm{lnfw, lnfb, lnf, lnf_mean, lnf_rstd};

/// \return the bias that is still to be added to the branch: with dropout it is added before
MaybeTensor drop_branch(PartKernels& k, Site site, Tensor bias, Activation mask) {
  if (!k.drops()) return bias;
  k.drop(site, bias, branch, mask);
  return {};
}

void drop_embedded(PartKernels& k) {
  if (k.drops()) k.drop(Site::embedded, {}, embedded, embedded_mask);
}

void embed_forward(PartKernels& k) {
  k.embed(embedded);
  drop_embedded(k);
}

void look_up(PartKernels& k) { k.look_up(branch); }

void embed_looked_up(PartKernels& k) {
  k.complete(branch);
  k.add_positions(branch, embedded);
  drop_embedded(k);
}

/// The norm that mlp begins with is one kernel with the residual.
void attend(PartKernels& k) {
  k.norm(stream, first_norm);
  k.linear(ln1, qkvw, qkvb, qkv);
  k.attend();
  k.linear(attention, attprojw, {}, branch);
}

void add_attention(PartKernels& k) {
  k.complete(branch);
  MaybeTensor const bias = drop_branch(k, Site::attproj, attprojb, attproj_mask);
  k.add_and_norm(stream, branch, bias, middle, second_norm);
}

void expand(PartKernels& k) { k.linear_gelu(ln2, fcw, fcb, fc, gelu); }

void expand_and_project(PartKernels& k) {
  expand(k);
  k.linear(gelu, fcprojw, {}, branch);
}

void add_mlp(PartKernels& k) {
  k.complete(branch);
  MaybeTensor const bias = drop_branch(k, Site::fcproj, fcprojb, fcproj_mask);
  k.add(middle, branch, bias, output);
}

void head_forward(PartKernels& k) {
  k.norm(stream, last_norm);
  if (!k.splits_loss()) k.linear(lnf, wte, {}, logits);
}

// Backward. The stream's gradient passes both halves of a block unchanged (residual). Each half adds the gradient
// through its own branch. The branch's gradient is the stream's. With dropout it is 0 where an element was dropped.

void logits_input_backward(PartKernels& k) { k.input_gradient(logits, wte, {}, branch); }

void logits_weight_backward(PartKernels& k) { k.weight_gradient(logits, lnf, wte, {}); }

void logits_backward(PartKernels& k) {
  logits_input_backward(k);
  logits_weight_backward(k);
}

void last_norm_backward(PartKernels& k) {
  k.complete(branch);
  k.norm_backward(branch, stream, last_norm, d_stream, Write::overwrite);
}

void head_backward(PartKernels& k) {
  logits_backward(k);
  last_norm_backward(k);
}

/// The gradient of what a half adds to the stream.
Activation d_added(PartKernels const& k) { return k.drops() ? branch : d_stream; }

void fcproj_backward(PartKernels& k) {
  if (k.drops()) k.drop_backward(Site::fcproj, fcproj_mask, d_stream, d_added(k));
  k.weight_gradient(d_added(k), gelu, fcprojw, fcprojb);
}

void fc_input_backward(PartKernels& k) {
  k.input_gradient(d_added(k), fcprojw, fc, d_fc);
  k.input_gradient(d_fc, fcw, {}, branch);
}

void fc_weight_backward(PartKernels& k) { k.weight_gradient(d_fc, ln2, fcw, fcb); }

void fc_backward(PartKernels& k) {
  fc_input_backward(k);
  fc_weight_backward(k);
}

void second_norm_backward(PartKernels& k) {
  k.complete(branch);
  k.norm_backward(branch, middle, second_norm, d_stream, Write::add);
}

void attproj_backward(PartKernels& k) {
  if (k.drops()) k.drop_backward(Site::attproj, attproj_mask, d_stream, d_added(k));
  k.weight_gradient(d_added(k), attention, attprojw, attprojb);
}

void qkv_input_backward(PartKernels& k) {
  k.input_gradient(d_added(k), attprojw, {}, d_attention);
  k.attend_backward(d_attention);
  k.input_gradient(d_qkv, qkvw, {}, branch);
}

void qkv_weight_backward(PartKernels& k) { k.weight_gradient(d_qkv, ln1, qkvw, qkvb); }

void qkv_backward(PartKernels& k) {
  qkv_input_backward(k);
  qkv_weight_backward(k);
}

void first_norm_backward(PartKernels& k) {
  k.complete(branch);
  k.norm_backward(branch, stream, first_norm, d_stream, Write::add);
}

void embed_backward(PartKernels& k) {
  if (k.drops()) k.drop_backward(Site::embedded, embedded_mask, d_stream, d_stream);
  k.embed_backward(d_stream);
}

void maximum_of_logits(PartKernels& k) {
  if (k.splits_loss()) k.linear(lnf, wte, {}, logits);
  k.loss_maximum();
}

void sums_of_logits(PartKernels& k) { k.loss_sums(); }

void loss_of_sums(PartKernels& k) { k.loss_of_sums(); }

void loss_in_slices(PartKernels& k) {
  maximum_of_logits(k);
  sums_of_logits(k);
  loss_of_sums(k);
}

void whole_loss(PartKernels& k) {
  if (k.splits_loss()) k.linear(lnf, wte, {}, logits);
  k.loss();
}

using Pieces = std::vector<PartPiece>;

/// Of every chunk of rows; of all rows, if the loss is not split.
Pieces of_chunks(Pieces const& of_one, GptOptions const& options) {
  if (!options.splits_loss()) return of_one;
  Pieces all;
  for (Index chunk = 0; chunk < options.loss_chunks; ++chunk)
    for (PartPiece piece : of_one) {
      piece.chunk = chunk;
      all.push_back(piece);
    }
  return all;
}

Pieces forward_pieces(PartKind kind, GptOptions const& options) {
  switch (kind) {
  case PartKind::embed: return options.slices.cuts() ? Pieces{{look_up}, {embed_looked_up}} : Pieces{{embed_forward}};
  case PartKind::attention: return {{attend}, {add_attention}};
  case PartKind::mlp: return {{expand_and_project}, {add_mlp}};
  case PartKind::head: return {{head_forward}};
  }
  throw Error(fmt::format("no kind of part {}", static_cast<int>(kind)));
}

Pieces loss_pieces(GptOptions const& options) {
  if (options.slices.are_shared()) return of_chunks({{maximum_of_logits}, {sums_of_logits}, {loss_of_sums}}, options);
  return of_chunks({{options.slices.cuts() ? loss_in_slices : whole_loss}}, options);
}

Pieces recompute_pieces(PartKind kind, Recompute how, GptOptions const& options) {
  bool const attends = kind == PartKind::attention;
  if (how == Recompute::selective && attends)
    return {{[](PartKernels& kernels) { kernels.attention_probabilities(); }}};
  if (how == Recompute::full && attends) return forward_pieces(kind, options);
  if (how == Recompute::full && kind == PartKind::mlp) return {{expand}};
  return {};
}

Pieces head_pieces(GptOptions const& options) {
  if (!options.splits_loss() && !options.slices.are_shared()) return {{head_backward}};
  Pieces const of_one = options.slices.are_shared() ? Pieces{{logits_input_backward}, {logits_weight_backward}}
                                                    : Pieces{{logits_backward}};
  Pieces pieces = of_chunks(of_one, options);
  pieces.push_back({last_norm_backward});
  return pieces;
}

Pieces backward_pieces(PartKind kind, GptOptions const& options) {
  bool const shared = options.slices.are_shared();
  switch (kind) {
  case PartKind::embed: return {{embed_backward}};
  case PartKind::attention:
    if (shared) return {{attproj_backward}, {qkv_input_backward}, {qkv_weight_backward}, {first_norm_backward}};
    return {{attproj_backward}, {qkv_backward}, {first_norm_backward}};
  case PartKind::mlp:
    if (shared) return {{fcproj_backward}, {fc_input_backward}, {fc_weight_backward}, {second_norm_backward}};
    return {{fcproj_backward}, {fc_backward}, {second_norm_backward}};
  case PartKind::head: return head_pieces(options);
  }
  throw Error(fmt::format("no kind of part {}", static_cast<int>(kind)));
}

} // namespace

std::vector<PartPiece> part_pieces(Pass pass, PartKind kind, GptOptions const& options, Recompute how) {
  switch (pass) {
  case Pass::forward: return forward_pieces(kind, options);
  case Pass::loss: return loss_pieces(options);
  case Pass::recompute: return recompute_pieces(kind, how, options);
  case Pass::backward: return backward_pieces(kind, options);
  }
  throw Error(fmt::format("no pass {}", static_cast<int>(pass)));
}

} // namespace trainstone
