#pragma once

// The programs of workers and servers where servers update unit by unit (ServerSchedule::priority). A unit's parameters
// are on their way before all gradients are there, so there is no norm, and the update is a part of the step. Owns the
// order in which a server waits for what workers push. It is the order of the next forward. A server does earlier what
// can be done earlier: no unit needs what another one needs. Pure functions.

#include "parallel/program/passes.hpp"

#include <vector>

namespace trainstone {

/// A worker's order, and before the first use of a unit the waits for its parameters and for its pushes of the step
/// before, whose gradients the next backward overwrites.
Instructions with_pulls(Instructions const& order, ShardPlan const& plan, GradientPass::Buckets buckets);

/// A worker's order of a micro-batch. Behind the last push of a unit its parameters become old, and the worker begins
/// to receive the new ones.
Instructions with_unit_updates(Instructions const& order, ShardPlan const& plan, GradientPass::Buckets buckets);

/// A server's step. The losses meet when all workers have pushed what backward completes last.
Instructions server_step_by_priority(ShardPlan const& plan, GradientPass::Buckets buckets);

} // namespace trainstone
