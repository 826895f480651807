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

void look_up(PartKernels& k) {
  k.look_up(branch);
  k.complete(branch);
  k.add_positions(branch, embedded);
}

void embed_forward(PartKernels& k) {
  k.has_slices() ? look_up(k) : k.embed(embedded);
  if (k.drops()) k.drop(Site::embedded, {}, embedded, embedded_mask);
}

/// The norm that mlp begins with is one kernel with the residual.
void attention_forward(PartKernels& k) {
  k.norm(stream, first_norm);
  k.linear(ln1, qkvw, qkvb, qkv);
  k.attend();
  k.linear(attention, attprojw, {}, branch);
  k.complete(branch);
  MaybeTensor const bias = drop_branch(k, Site::attproj, attprojb, attproj_mask);
  k.add_and_norm(stream, branch, bias, middle, second_norm);
}

void expand(PartKernels& k) { k.linear_gelu(ln2, fcw, fcb, fc, gelu); }

void mlp_forward(PartKernels& k) {
  expand(k);
  k.linear(gelu, fcprojw, {}, branch);
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

void logits_backward(PartKernels& k) {
  k.input_gradient(logits, wte, {}, branch);
  k.weight_gradient(logits, lnf, wte, {});
  k.complete(branch);
}

void last_norm_backward(PartKernels& k) { k.norm_backward(branch, stream, last_norm, d_stream, Write::overwrite); }

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

void fc_backward(PartKernels& k) {
  k.input_gradient(d_added(k), fcprojw, fc, d_fc);
  k.input_gradient(d_fc, fcw, {}, branch);
  k.weight_gradient(d_fc, ln2, fcw, fcb);
}

void second_norm_backward(PartKernels& k) {
  k.complete(branch);
  k.norm_backward(branch, middle, second_norm, d_stream, Write::add);
}

void attproj_backward(PartKernels& k) {
  if (k.drops()) k.drop_backward(Site::attproj, attproj_mask, d_stream, d_added(k));
  k.weight_gradient(d_added(k), attention, attprojw, attprojb);
}

void qkv_backward(PartKernels& k) {
  k.input_gradient(d_added(k), attprojw, {}, d_attention);
  k.attend_backward(d_attention);
  k.input_gradient(d_qkv, qkvw, {}, branch);
  k.weight_gradient(d_qkv, ln1, qkvw, qkvb);
}

void first_norm_backward(PartKernels& k) {
  k.complete(branch);
  k.norm_backward(branch, stream, first_norm, d_stream, Write::add);
}

void embed_backward(PartKernels& k) {
  if (k.drops()) k.drop_backward(Site::embedded, embedded_mask, d_stream, d_stream);
  k.embed_backward(d_stream);
}

std::vector<DescribePiece> pieces_of_head(GptOptions const& options) {
  if (!options.splits_loss()) return {head_backward};
  std::vector<DescribePiece> pieces(static_cast<std::size_t>(options.loss_chunks), logits_backward);
  pieces.push_back(last_norm_backward);
  return pieces;
}

} // namespace

void describe_forward(PartKind kind, PartKernels& kernels) {
  switch (kind) {
  case PartKind::embed: return embed_forward(kernels);
  case PartKind::attention: return attention_forward(kernels);
  case PartKind::mlp: return mlp_forward(kernels);
  case PartKind::head: return head_forward(kernels);
  }
}

void describe_recompute(PartKind kind, Recompute how, PartKernels& kernels) {
  bool const attends = kind == PartKind::attention;
  if (how == Recompute::selective && attends) kernels.attention_probabilities();
  if (how == Recompute::full && attends) attention_forward(kernels);
  if (how == Recompute::full && kind == PartKind::mlp) expand(kernels);
}

void describe_loss(PartKernels& kernels) {
  if (kernels.splits_loss()) kernels.linear(lnf, wte, {}, logits);
  if (!kernels.has_slices()) return kernels.loss();
  kernels.loss_maximum();
  kernels.loss_sums();
  kernels.loss_of_sums();
}

std::vector<DescribePiece> backward_pieces(PartKind kind, GptOptions const& options) {
  switch (kind) {
  case PartKind::embed: return {embed_backward};
  case PartKind::attention: return {attproj_backward, qkv_backward, first_norm_backward};
  case PartKind::mlp: return {fcproj_backward, fc_backward, second_norm_backward};
  case PartKind::head: return pieces_of_head(options);
  }
  throw Error(fmt::format("no kind of part {}", static_cast<int>(kind)));
}

} // namespace trainstone
