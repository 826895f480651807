#pragma once

// How many kernels the engine starts, those inside of collectives among them: a pure function of the plan, like what it
// sends. The run's own check compares with what was counted.

#include "model/parameter_table.hpp"
#include "parallel/plan/shard_plan.hpp"

#include <cstdint>

namespace trainstone {

/// Of one step: sums of gradients over ranks and micro-batches, the norm, and shares on their way into gather slots.
std::uint64_t engine_step_launches(ShardPlan const& plan);
/// Of one update. Where it is skipped, there are none.
std::uint64_t engine_update_launches(ShardPlan const& plan, ParameterTable const& table);
/// Of one micro-batch of an evaluation.
std::uint64_t engine_evaluation_launches(ShardPlan const& plan);

} // namespace trainstone
