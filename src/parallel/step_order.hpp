#pragma once

// What belongs together when gradients are reduced: the run of a group, its memory, its scratch. Pure functions of a
// plan, from which the passes of a step program decide what waits for what.

#include "parallel/shard_plan.hpp"

#include <optional>

namespace trainstone {

/// The run whose gradients lie in this group.
Index run_of_group(ShardPlan const& plan, Index group);
/// The run whose buckets are reduced when a group's gradient of a micro-batch is complete, if there is one.
std::optional<Index> run_to_reduce(ShardPlan const& plan, Index group, Index micro_batch);
/// Whether gradients of two runs lie in the same staging memory: one must be reduced before the other is written.
bool share_memory(ShardPlan const& plan, Index run, Index other);
/// Whether one of two buckets must be reduced before the other one's reduction starts: both need the same scratch.
bool share_scratch(ShardPlan const& plan, Index bucket, Index other);

} // namespace trainstone
