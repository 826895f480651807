#pragma once

// What the kernels of parts write and read, by their description (part_kernels.hpp): the activations, which the plan of
// memory holds; those that are kept for backward, and who reads them, which the proof of a step goes by; and the
// gradients of parameters by piece of backward. Plain values.

#include "model/activation_plan.hpp"
#include "model/part.hpp"
#include "model/part_kernels.hpp"

#include <array>
#include <optional>
#include <set>
#include <vector>

namespace trainstone {

/// The activations that a part's forward and backward write, and the loss behind head. Those of a block stand for all
/// blocks.
std::set<Activation> activations_written(PartKind kind, GptOptions const& options);

/// Of these, the ones that the part's forward writes, or the loss behind head, and that backward reads: memory that
/// waits for backward.
std::set<Activation> kept_for_backward(PartKind kind, GptOptions const& options);

/// The activations that must be there before a part's forward, before the loss, and before a part's backward. Work
/// space is not among them. Activation::stream stands for what the part begins with.
std::set<Activation> read_by_forward(PartKind kind, GptOptions const& options);
std::set<Activation> read_by_loss(GptOptions const& options);
std::set<Activation> read_by_backward(PartKind kind, GptOptions const& options);

/// The activations of a block that its parts write when they compute again: blocks need no memory of their own for
/// them. And those that must be there before a part does so.
std::set<Activation> recomputed(Recompute how, GptOptions const& options);
std::set<Activation> recomputed(PartKind kind, Recompute how, GptOptions const& options);
std::set<Activation> read_by_recompute(PartKind kind, Recompute how, GptOptions const& options);

/// By piece of the part's backward: the tensors whose gradients it writes.
std::vector<std::vector<Tensor>> gradients_written(PartKind kind, GptOptions const& options);

/// What ranks that share the slices of a model bring together between two pieces of a pass. Each rank has left its part
/// of it. At the end, all have the whole.
enum class SliceExchange {
  sum,          ///< over slices: of (N, C) all rows or, if ranks share positions, this rank's
  loss_maximum, ///< of the logits
  loss_sums,    ///< over slices: the first row of Activation::loss_sums
  gather,       ///< of the rows of all ranks that share positions: (N, C), where this rank's are in place
  gather_again, ///< the same of a norm, in backward
  norm_sums,    ///< over the ranks that share positions: the first row of Activation::norm_sums
  // Over the ranks that share features:
  qkv,          ///< queries, keys and values, (N, 3C) of the slices here
  hidden,       ///< the hidden layer, forward, and its gradient, backward: (N, 4C) of the slices here
  heads,        ///< the gradient of attention's output: (N, C) of the slices here, in the memory of `hidden`
  logits,       ///< of a chunk of rows
  feature_sums, ///< of a norm
};

/// "sum over slices", "maximum of logits", "sums of logits", "rows", "rows again", "sums of a norm's gradients",
/// "queries, keys and values", "hidden layer", "heads", "logits", "sums of a norm"
std::string_view to_string(SliceExchange exchange);

inline constexpr std::array slice_exchanges{
    SliceExchange::sum,          SliceExchange::loss_maximum, SliceExchange::loss_sums,   SliceExchange::gather,
    SliceExchange::gather_again, SliceExchange::norm_sums,    SliceExchange::qkv,         SliceExchange::hidden,
    SliceExchange::heads,        SliceExchange::logits,       SliceExchange::feature_sums};

/// Whether the ranks that share features bring it together. Else those do that share slices.
constexpr bool is_over_features(SliceExchange exchange) { return exchange >= SliceExchange::qkv; }
/// Whether ranks share what it is over.
bool happens(SliceExchange exchange, GptOptions const& options);

/// Where it lies.
PlacedActivation exchanged_activation(SliceExchange exchange, GptOptions const& options, Storage values);

struct PieceExchanges {
  std::set<SliceExchange> needs = {};  ///< what must have ended before the piece
  std::set<SliceExchange> starts = {}; ///< what can start behind it
  std::optional<Index> row_chunk = {}; ///< of a sum, the chunk of rows that starts, if it is one (chunks_of())
  bool operator==(PieceExchanges const&) const = default;
};

/// How many chunks of rows are brought together one by one.
Index chunks_of(SliceExchange exchange, GptOptions const& options);

/// Those of the parts of a stage that happen.
std::set<SliceExchange> exchanges_of(ModelStage const& stage, GptOptions const& options);

/// By piece. \param[in] how  of a recomputation
std::vector<PieceExchanges> piece_exchanges(Pass pass, PartKind kind, GptOptions const& options,
                                            Recompute how = Recompute::none);

} // namespace trainstone
