#pragma once

// Forward and backward of every part, written down once as calls of kernels on named tensors (part_steps.cpp). Who
// reads the description gives an object that receives the calls: one launches the kernels (launched_kernels_impl.hpp),
// one counts them (counted_kernels.cpp), one lists what they read and write (part_lists.cpp). So the prediction cannot
// leave out a kernel that runs. Knows neither memory nor Kokkos. The model: pre-layer-norm blocks, GELU in its tanh
// form, learned positions, the head tied to the token table, biases. Source: Language Models are Unsupervised Multitask
// Learners.

#include "core/write.hpp"
#include "model/activation_plan.hpp"
#include "model/part.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace trainstone {

/// Where the model drops; every block has three sites.
enum class DropoutSite : std::uint32_t { embedded = 0, attention = 1, attproj = 2, fcproj = 3 };

/// A layer norm: its parameters, its output, and the statistics that it leaves for backward.
struct LayerNorm {
  Tensor gain, bias;
  Activation out, mean, rstd;
};

using MaybeTensor = std::optional<Tensor>;
using MaybeActivation = std::optional<Activation>;

/// Receives the calls of a part's description, in the order of the kernels. Tensors of a block are those of the part's
/// block. A kernel reads its first arguments and writes its last ones. If slices cut the model (TensorSlices), kernels
/// run on each slice that is here. A product whose input features are cut leaves a sum over these slices. If the head
/// computes logits chunk by chunk of rows (GptOptions::loss_chunks), the loss and a piece of the head's backward have
/// tensors of one chunk.
class PartKernels {
public:
  virtual ~PartKernels() = default;

  /// Whether elements are dropped.
  virtual bool drops() const = 0;
  virtual GptOptions const& options() const = 0;
  /// out = the rows of the token table and of the position table
  virtual void embed(Activation out) = 0;
  /// sum = the rows of the token table that slices have here; out = what was looked up, and the rows of the position
  /// table
  virtual void look_up(Activation sum) = 0;
  virtual void add_positions(Activation looked_up, Activation out) = 0;
  /// The sum over slices is there: it is rounded to where it belongs. If ranks share positions, this rank's rows are.
  virtual void complete(Activation sum) = 0;
  /// What ranks that share features have added up, of a product whose input features they share, is there.
  virtual void summed(Activation sum) = 0;
  /// Of ranks that share positions: this rank's rows get their places among all rows, so that these can be gathered.
  virtual void place(Activation own, Activation all) = 0;
  /// What was gathered is copied to where it is kept.
  virtual void keep(Activation all, Activation kept) = 0;
  virtual void norm(Activation x, LayerNorm const& norm) = 0;
  /// sum = x + branch + bias, and the norm of sum
  /// The same of ranks that share features: the sums over those that are here; when they are of all, the norm.
  virtual void feature_sums(Activation x) = 0;
  virtual void norm_of_sums(Activation x, LayerNorm const& norm) = 0;
  virtual void add_and_norm(Activation x, Activation branch, MaybeTensor bias, Activation sum,
                            LayerNorm const& norm) = 0;
  virtual void add(Activation x, Activation branch, MaybeTensor bias, Activation sum) = 0;
  /// y = x W^T + bias
  virtual void linear(Activation x, Tensor weight, MaybeTensor bias, Activation y) = 0;
  /// pre = x W^T + bias, y = gelu(pre)
  virtual void linear_gelu(Activation x, Tensor weight, Tensor bias, Activation pre, Activation y) = 0;
  /// What comes behind a product whose sum over features is there: y = x + bias; pre = x + bias, y = gelu(pre); d_x =
  /// d_x times the derivative of GELU at `pre`.
  virtual void add_bias(Activation x, Tensor bias, Activation y) = 0;
  virtual void bias_gelu(Activation x, Tensor bias, Activation pre, Activation y) = 0;
  virtual void gelu_backward(Activation pre, Activation d_x) = 0;
  /// x = dropout of (x + bias), in place
  virtual void drop(DropoutSite site, MaybeTensor bias, Activation x, Activation mask) = 0;
  /// From `qkv` to `attention`.
  virtual void attend() = 0;
  /// From `qkv` to `probabilities` alone, as attend() leaves them; of materialised attention.
  virtual void attention_probabilities() = 0;
  /// From `logits` to `losses`; in training, logits become their gradient.
  virtual void loss() = 0;
  /// The same with slices: the maximum of the slices here, their sums, then losses and gradients, when maximum and sums
  /// are of all slices.
  virtual void loss_maximum() = 0;
  virtual void loss_sums() = 0;
  virtual void loss_of_sums() = 0;

  /// d_wte += and d_wpe = or += what d_out says
  virtual void embed_backward(Activation d_out) = 0;
  virtual void drop_backward(DropoutSite site, Activation mask, Activation d_y, Activation d_x) = 0;
  /// d_x = d_y W, times the derivative of GELU at `pre` if that is given
  virtual void input_gradient(Activation d_y, Tensor weight, MaybeActivation pre, Activation d_x) = 0;
  /// d_W = or += d_y^T x, d_bias = or += the sums of d_y's columns
  virtual void weight_gradient(Activation d_y, Activation x, Tensor weight, MaybeTensor bias) = 0;
  /// The gradients of the norm's parameters, too.
  virtual void norm_backward(Activation d_y, Activation x, LayerNorm const& norm, Activation d_x, Write d_x_mode) = 0;
  /// The same of ranks that share features, for the gradient of the input alone: sums, and what they are for.
  virtual void feature_sums_backward(Activation d_y, Activation x, LayerNorm const& norm) = 0;
  virtual void norm_input_of_sums(Activation d_y, Activation x, LayerNorm const& norm, Activation d_x,
                                  Write d_x_mode) = 0;
  /// The same with slices: the gradient of the input; sums over each block of positions for the gradients of the
  /// parameters, and of ranks that share positions over all blocks here; these gradients, from the sums.
  virtual void norm_input_gradient(Activation d_y, Activation x, LayerNorm const& norm, Activation d_x,
                                   Write d_x_mode) = 0;
  virtual void norm_sums(Activation d_y, Activation x, LayerNorm const& norm) = 0;
  virtual void norm_parameters(LayerNorm const& norm) = 0;
  /// From d_out to `d_qkv`.
  virtual void attend_backward(Activation d_out) = 0;
};

/// What is computed of a part at a time. The loss is between the forward and the backward of head.
enum class Pass { forward, loss, recompute, backward };

/// Whether a pass is cut before a step.
enum class PassCut {
  never,
  if_shared,           ///< if ranks share the slices
  if_positions_shared, ///< if ranks share positions, too
  if_features_shared,  ///< if ranks share features
  if_rows_shared,      ///< if ranks share positions or features: a row of the stream is not whole, or not here
  always,
};

/// Whether a step runs chunk by chunk of rows, if sums over slices do (GptOptions::row_chunks).
enum class StepRows { all, in_chunks };

struct PartStep {
  void (*describe)(PartKernels& kernels);
  PassCut cut_before = PassCut::never;
  StepRows rows = StepRows::all;
};

/// A stretch of a pass. Between two pieces, other work of the rank may start.
struct PartPiece {
  std::span<PartStep const> steps;     ///< of memory that is there as long as the program
  std::optional<Index> chunk = {};     ///< of the loss: of rows, if the loss is split and the piece is of one chunk
  std::optional<Index> row_chunk = {}; ///< of rows of a sum over slices, if the piece is of one

  void describe(PartKernels& kernels) const {
    for (PartStep const& step : steps) step.describe(kernels);
  }
};

/// The pieces of a pass, in order.
///
/// Of backward, what a piece has completed can be reduced while the next ones compute. Of the layers that follow a
/// norm, the gradient of the input comes before those of weight and bias, which need not wait until it is summed. If
/// the loss is split, the loss has pieces of every chunk, each chunk's backward follows its loss, and the norm of head
/// follows the last chunk. Of forward, a block computes again all that its backward reads: the last product of a block
/// is not among it, because nobody reads its result again. Where ranks share the slices of a model, what they bring
/// together (SliceExchange of part_lists.hpp) lies between two pieces. If they share positions, too, a product that all
/// slices read has a piece before it that places this rank's rows.
/// \param[in] how  of recompute; of Recompute::none there is no piece
std::vector<PartPiece> part_pieces(Pass pass, PartKind kind, GptOptions const& options,
                                   Recompute how = Recompute::none);

} // namespace trainstone
