#pragma once

// What the ranks of a tensor group bring together while they compute: sums and maxima over slices of the model, sums
// over features, and rows if they share positions. Owns the collectives. A plain value. Does not know when a step needs
// them (parallel/program/passes.hpp).

#include "comm/execution/pieces.hpp"
#include "model/activation_plan.hpp"
#include "model/part.hpp"
#include "model/part_lists.hpp"
#include "parallel/plan/planned_collective.hpp"
#include "parallel/plan/state_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace trainstone {

/// The residual stream of a micro-batch, (N, C), and its logits, (N, Vp). Ranks that share positions have some rows,
/// and ranks that share features some columns.
struct StreamShape {
  MicroBatchShape rows = {};
  Index channels = 0;
  Index vocab = 0; ///< Vp; read where ranks share features

  Index own_channels(GptOptions const& options) const { return channels / options.slices.feature_parts; }
  /// All rows; those of this rank.
  Index elements(GptOptions const& options) const { return rows.rows() * own_channels(options); }
  Index own_elements(GptOptions const& options) const { return own_rows(rows, options).rows() * own_channels(options); }
};

struct PlannedExchange {
  PlannedCollective collective;
  std::size_t element_bytes;
  Pieces pieces = {}; ///< where the elements lie: a rank's rows are some positions of every sample
  Index chunks = 1;   ///< of rows: each is brought together by a collective of its own, as above
};

struct TensorPlan {
  /// Empty: one rank has all of every layer.
  std::map<SliceExchange, PlannedExchange> exchanges = {};
  std::uint64_t memory_bytes = 0; ///< that exchanges work in: ActivationSet::exchanged

  /// The activations that lie in memory of their own: the engine has memory for the others.
  ActivationSet own_activations() const { return exchanges.empty() ? ActivationSet::all : ActivationSet::own; }
  /// The axis whose ranks share this memory, if they do.
  std::optional<Axis> sharers() const;
};

/// \param[in] parts   of this rank
TensorPlan make_tensor_plan(AlgorithmChoice const& choice, StateLayout const& layout, PartTable const& parts,
                            StreamShape const& stream);

} // namespace trainstone
