#pragma once

// The collectives of a plan, each with how often it runs, and what they send: counted from the step program that the
// plan leads to. Pure functions. The cost grows neither with the number of buckets nor with that of micro-batches.

#include "comm/schedule/counters.hpp"
#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/step_counts.hpp"

#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// What a rank sends for one purpose: a row of `estimate`.
struct TrafficRow {
  std::string name; ///< "gradients, reduce-scatter ring"
  Traffic traffic;
};

/// The collectives of the rank whenever the state of the training is set: broadcasts of parameters (in fp32) and
/// moments.
std::vector<RepeatedCollective> start_collectives(ShardPlan const& plan);
/// The collectives of the rank per step of the training without those after the update; those after an update that is
/// not skipped; and those of every micro-batch of a validation.
std::vector<RepeatedCollective> step_collectives(ShardPlan const& plan);
std::vector<RepeatedCollective> update_collectives(ShardPlan const& plan);
std::vector<RepeatedCollective> evaluation_collectives(ShardPlan const& plan);
/// The collective of this kind, on an axis, that moves most bytes in a step, an update or a validation. It is the same
/// on all ranks, except for the members of its axis. Nothing if the training runs no such collective.
/// \param[in] of_tensor_ranks  between tensor ranks, or between others
std::optional<RepeatedCollective> heaviest_collective(ShardPlan const& plan, Collective collective,
                                                      bool of_tensor_ranks = false);

/// The traffic of the rank whenever the state is set.
std::vector<TrafficRow> start_traffic(ShardPlan const& plan);
/// The traffic of the rank per step of the training; the part of it that a skipped update does not send; and the
/// traffic of every micro-batch of a validation.
std::vector<TrafficRow> step_traffic(ShardPlan const& plan);
Traffic update_traffic(ShardPlan const& plan);
Traffic evaluation_traffic(ShardPlan const& plan);
/// Control traffic of a step: the losses of all micro-batches, a value of every rank with its requests, and the norm.
std::vector<TrafficRow> control_traffic(ShardPlan const& plan);
/// Control traffic of one global batch of a validation, of which each rank runs so many micro-batches.
Traffic evaluation_control(ShardPlan const& plan, Index rank_micro_batches);

/// The losses of all micro-batches, one value each, agreed on by all ranks (comm/execution/control.hpp).
Traffic control_traffic_of(Index values, Topology const& topology, Rank rank);

} // namespace trainstone
