#pragma once

// How parts come together that lie with different ranks: the parameters of a unit, and the squared sums of the norm.
// Owns the collectives and the places for what they gather. A plain value beside the layout of the state
// (state_layout.hpp). Does not decide when: the passes of a step program do (parallel/program/passes.hpp).

#include "comm/execution/pieces.hpp"
#include "parallel/plan/bucket.hpp"
#include "parallel/plan/planned_collective.hpp"
#include "parallel/plan/state_layout.hpp"

#include <optional>
#include <vector>

namespace trainstone {

/// The gather of a unit's parameters, or of a slice of them.
struct UnitGather {
  PlannedCollective planned;
  Pieces pieces; ///< where what owners have of it lies in the unit; empty: one after the other
};

struct GatherPlan {
  std::vector<std::vector<UnitGather>> of_unit; ///< none on an axis of length 1; by priority one for each slice
  std::optional<PlannedCollective> norm;        ///< of the squared sums of all blocks
  Index prefetch = 1;                           ///< units that are gathered ahead
  Index slots = 0;                              ///< for whole units, where parameters are sharded
  /// The updated shares of owners are gathered after the update, because every rank keeps all parameters.
  bool after_update = false;

  /// Gathers at a time, each with its own scratch.
  Index in_flight() const { return prefetch + 1; }
  /// The updated parameters of all units may be under way, each with scratch of its own, whose number is the unit's. A
  /// server sends slices of them one after the other: of those that are updated, what the next forward needs first.
  bool by_priority = false;
  /// The ranks that share the memory of gathered parameters: the flat vector, or the slots.
  std::optional<Axis> sharers() const;
};

/// Whether two gathers of a plan cost the same: a model of many blocks has few kinds. Slices that servers send start no
/// kernels, wherever their elements lie.
bool are_alike(UnitGather const& gather, UnitGather const& other);

/// Of gathers that are alike, the first one.
std::vector<UnitGather const*> different_gathers(GatherPlan const& gathers);

/// \param[in] pushed  by priority: how gradients are cut, and so parameters; null: not by priority
GatherPlan make_gather_plan(Index prefetch, BucketPlan const* pushed, AlgorithmChoice const& choice,
                            StateLayout const& layout);

} // namespace trainstone
