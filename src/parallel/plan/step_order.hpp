#pragma once

// What belongs together when gradients are reduced: the run of a group, its memory, its scratch. Pure functions of a
// plan, from which the passes of a step program decide what waits for what. The file also says which gathers and which
// buckets are alike.

#include "parallel/plan/shard_plan.hpp"

namespace trainstone {

/// The run whose gradients lie in this group.
Index run_of_group(ShardPlan const& plan, Index group);
/// Whether gradients of two runs lie in the same memory: one must be reduced before the other is written.
bool share_memory(ShardPlan const& plan, Index run, Index other);
/// Whether one of two buckets must be reduced before the other one's reduction starts: both need the same scratch.
bool share_scratch(ShardPlan const& plan, Index bucket, Index other);

/// Whether gathers of two groups of a plan are the same problem: a model of many blocks has few kinds.
bool are_alike(PlannedCollective const& gather, PlannedCollective const& other);

/// Of buckets with equal shapes, the collectives are the same, and the places of their elements differ by a shift:
/// blocks are cut alike. The shape is the owner, and of every part the size of the group and the range of each share.
std::vector<Index> shape_of(ShardPlan const& plan, Bucket const& bucket);

} // namespace trainstone
