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

/// The norm, with the place of its own rows. Where all rows are kept, own rows need no place of their own.
LayerNorm with_own_rows(PartKernels const& k, LayerNorm norm, bool keeps) {
  if (k.options().shares_positions() && keeps) norm.out = normed;
  return norm;
}

LayerNorm own_first_norm(PartKernels const& k) { return with_own_rows(k, first_norm, k.options().keeps_gathered()); }
LayerNorm own_second_norm(PartKernels const& k) { return with_own_rows(k, second_norm, k.options().keeps_gathered()); }

/// All rows of a norm's output, of which those of other ranks were gathered; to keep them they are copied.
Activation all_rows(PartKernels& k, LayerNorm const& norm, bool keeps) {
  if (!k.options().shares_positions()) return norm.out;
  if (!keeps) return gathered;
  k.keep(gathered, norm.out);
  return norm.out;
}

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

void place_first_norm(PartKernels& k) {
  k.norm(stream, own_first_norm(k));
  k.place(own_first_norm(k).out, gathered);
}

void attend_to_rows(PartKernels& k) {
  k.linear(all_rows(k, first_norm, k.options().keeps_gathered()), qkvw, qkvb, qkv);
  k.attend();
  k.linear(attention, attprojw, {}, branch);
}

void attend(PartKernels& k) {
  k.norm(stream, first_norm);
  attend_to_rows(k);
}

/// The norm that mlp begins with is one kernel with the residual.
void add_attention(PartKernels& k) {
  k.complete(branch);
  MaybeTensor const bias = drop_branch(k, Site::attproj, attprojb, attproj_mask);
  k.add_and_norm(stream, branch, bias, middle, own_second_norm(k));
}

void place_second_norm(PartKernels& k) { k.place(own_second_norm(k).out, gathered); }

void expand(PartKernels& k) {
  k.linear_gelu(all_rows(k, second_norm, k.options().keeps_gathered()), fcw, fcb, fc, gelu);
}

void expand_and_project(PartKernels& k) {
  expand(k);
  k.linear(gelu, fcprojw, {}, branch);
}

void add_mlp(PartKernels& k) {
  k.complete(branch);
  MaybeTensor const bias = drop_branch(k, Site::fcproj, fcprojb, fcproj_mask);
  k.add(middle, branch, bias, output);
}

void place_last_norm(PartKernels& k) {
  LayerNorm const own = with_own_rows(k, last_norm, true);
  k.norm(stream, own);
  k.place(own.out, gathered);
}

void logits_of_rows(PartKernels& k) {
  Activation const rows = all_rows(k, last_norm, true);
  if (!k.options().splits_loss()) k.linear(rows, wte, {}, logits);
}

void head_forward(PartKernels& k) {
  k.norm(stream, last_norm);
  logits_of_rows(k);
}

// Backward. The stream's gradient passes both halves of a block unchanged (residual). Each half adds the gradient
// through its own branch. The branch's gradient is the stream's. With dropout it is 0 where an element was dropped.

void logits_input_backward(PartKernels& k) { k.input_gradient(logits, wte, {}, branch); }

void logits_weight_backward(PartKernels& k) { k.weight_gradient(logits, lnf, wte, {}); }

void logits_backward(PartKernels& k) {
  logits_input_backward(k);
  logits_weight_backward(k);
}

// The gradients of a norm and of its input, in pieces or as a whole.

/// A norm, what it is of, and how that gets its gradient.
struct NormedStream {
  LayerNorm norm;
  Activation x;
  Write d_x_mode;
};

constexpr NormedStream of_attention{first_norm, stream, Write::add}, of_mlp{second_norm, middle, Write::add},
    of_head{last_norm, stream, Write::overwrite};

template <NormedStream const& of>
void sums_of_norm(PartKernels& k) {
  k.complete(branch);
  k.norm_sums(branch, of.x, of.norm);
}

template <NormedStream const& of>
void norm_input(PartKernels& k) {
  k.norm_input_gradient(branch, of.x, of.norm, d_stream, of.d_x_mode);
}

template <NormedStream const& of>
void norm_parameters(PartKernels& k) {
  k.norm_parameters(of.norm);
}

template <NormedStream const& of>
void norm_backward(PartKernels& k) {
  if (k.options().slices.cuts()) {
    sums_of_norm<of>(k);
    norm_input<of>(k);
    return norm_parameters<of>(k);
  }
  k.complete(branch);
  k.norm_backward(branch, of.x, of.norm, d_stream, of.d_x_mode);
}

void head_backward(PartKernels& k) {
  logits_backward(k);
  norm_backward<of_head>(k);
}

/// The gradient of what a half adds to the stream.
Activation d_added(PartKernels const& k) { return k.drops() ? branch : d_stream; }

/// Its rows that products read.
Activation rows_of_d_added(PartKernels const& k) { return k.options().shares_positions() ? gathered : d_added(k); }

/// The rows of a norm's output that products read in backward.
Activation rows_of(PartKernels const& k, LayerNorm const& norm) {
  return k.options().shares_positions() && !k.options().keeps_gathered() ? gathered_again : norm.out;
}

/// The norm's rows come while the gradient goes back through two products.
void place_again(PartKernels& k, LayerNorm const& norm) {
  if (k.options().shares_positions() && !k.options().keeps_gathered()) k.place(norm.out, gathered_again);
}

void drop_fcproj_backward(PartKernels& k) {
  if (k.drops()) k.drop_backward(Site::fcproj, fcproj_mask, d_stream, d_added(k));
}

void place_mlp_backward(PartKernels& k) {
  drop_fcproj_backward(k);
  k.place(d_added(k), gathered);
}

void fcproj_weight_backward(PartKernels& k) {
  k.weight_gradient(rows_of_d_added(k), gelu, fcprojw, fcprojb);
  place_again(k, second_norm);
}

void fcproj_backward(PartKernels& k) {
  drop_fcproj_backward(k);
  fcproj_weight_backward(k);
}

void fc_input_backward(PartKernels& k) {
  k.input_gradient(rows_of_d_added(k), fcprojw, fc, d_fc);
  k.input_gradient(d_fc, fcw, {}, branch);
}

void fc_weight_backward(PartKernels& k) { k.weight_gradient(d_fc, rows_of(k, second_norm), fcw, fcb); }

void fc_backward(PartKernels& k) {
  fc_input_backward(k);
  fc_weight_backward(k);
}

void drop_attproj_backward(PartKernels& k) {
  if (k.drops()) k.drop_backward(Site::attproj, attproj_mask, d_stream, d_added(k));
}

void place_attention_backward(PartKernels& k) {
  drop_attproj_backward(k);
  k.place(d_added(k), gathered);
}

void attproj_weight_backward(PartKernels& k) {
  k.weight_gradient(rows_of_d_added(k), attention, attprojw, attprojb);
  place_again(k, first_norm);
}

void attproj_backward(PartKernels& k) {
  drop_attproj_backward(k);
  attproj_weight_backward(k);
}

void qkv_input_backward(PartKernels& k) {
  k.input_gradient(rows_of_d_added(k), attprojw, {}, d_attention);
  k.attend_backward(d_attention);
  k.input_gradient(d_qkv, qkvw, {}, branch);
}

void qkv_weight_backward(PartKernels& k) { k.weight_gradient(d_qkv, rows_of(k, first_norm), qkvw, qkvb); }

void qkv_backward(PartKernels& k) {
  qkv_input_backward(k);
  qkv_weight_backward(k);
}

void drop_embedded_backward(PartKernels& k) {
  if (k.drops()) k.drop_backward(Site::embedded, embedded_mask, d_stream, d_stream);
}

void place_embed_backward(PartKernels& k) {
  drop_embedded_backward(k);
  k.place(d_stream, gathered);
}

void embed_rows_backward(PartKernels& k) { k.embed_backward(gathered); }

void embed_backward(PartKernels& k) {
  drop_embedded_backward(k);
  k.embed_backward(d_stream);
}

void maximum_of_logits(PartKernels& k) {
  if (k.options().splits_loss()) k.linear(lnf, wte, {}, logits);
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
  if (k.options().splits_loss()) k.linear(lnf, wte, {}, logits);
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
  case PartKind::attention:
    if (options.shares_positions()) return {{place_first_norm}, {attend_to_rows}, {add_attention}};
    return {{attend}, {add_attention}};
  case PartKind::mlp:
    if (options.shares_positions()) return {{place_second_norm}, {expand_and_project}, {add_mlp}};
    return {{expand_and_project}, {add_mlp}};
  case PartKind::head:
    if (options.shares_positions()) return {{place_last_norm}, {logits_of_rows}};
    return {{head_forward}};
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
  if (how == Recompute::full && kind == PartKind::mlp) {
    if (options.shares_positions()) return {{place_second_norm}, {expand}};
    return {{expand}};
  }
  return {};
}

Pieces head_pieces(GptOptions const& options) {
  if (!options.splits_loss() && !options.slices.are_shared()) return {{head_backward}};
  Pieces const of_one = options.slices.are_shared() ? Pieces{{logits_input_backward}, {logits_weight_backward}}
                                                    : Pieces{{logits_backward}};
  Pieces pieces = of_chunks(of_one, options);
  if (options.shares_positions())
    pieces.insert(pieces.end(), {{sums_of_norm<of_head>}, {norm_input<of_head>}, {norm_parameters<of_head>}});
  else
    pieces.push_back({norm_backward<of_head>});
  return pieces;
}

/// Of ranks that share positions.
Pieces backward_pieces_of_rows(PartKind kind) {
  switch (kind) {
  case PartKind::embed: return {{place_embed_backward}, {embed_rows_backward}};
  case PartKind::attention:
    return {{place_attention_backward},     {attproj_weight_backward},    {qkv_input_backward},
            {qkv_weight_backward},          {sums_of_norm<of_attention>}, {norm_input<of_attention>},
            {norm_parameters<of_attention>}};
  case PartKind::mlp:
    return {{place_mlp_backward},   {fcproj_weight_backward}, {fc_input_backward},      {fc_weight_backward},
            {sums_of_norm<of_mlp>}, {norm_input<of_mlp>},     {norm_parameters<of_mlp>}};
  case PartKind::head: break;
  }
  throw Error(fmt::format("no kind of part {}", static_cast<int>(kind)));
}

Pieces backward_pieces(PartKind kind, GptOptions const& options) {
  bool const shared = options.slices.are_shared();
  if (options.shares_positions() && kind != PartKind::head) return backward_pieces_of_rows(kind);
  switch (kind) {
  case PartKind::embed: return {{embed_backward}};
  case PartKind::attention:
    if (shared) return {{attproj_backward}, {qkv_input_backward}, {qkv_weight_backward}, {norm_backward<of_attention>}};
    return {{attproj_backward}, {qkv_backward}, {norm_backward<of_attention>}};
  case PartKind::mlp:
    if (shared) return {{fcproj_backward}, {fc_input_backward}, {fc_weight_backward}, {norm_backward<of_mlp>}};
    return {{fcproj_backward}, {fc_backward}, {norm_backward<of_mlp>}};
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
