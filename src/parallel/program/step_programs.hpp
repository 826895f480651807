#pragma once

// Makes the programs of a rank from its plan: the order of forward and backward, and passes that add to it what moves
// parameters and gradients. Pure functions.

#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/instruction.hpp"

namespace trainstone {

/// The programs of a rank. All ranks of a plan get the same ones, but for servers.
/// Complexity: O(parts + buckets) instructions, however many micro-batches the rank has.
StepProgram make_step_program(ShardPlan const& plan);

/// The programs for a plan in which one bucket stands for all buckets of a run, and has the run's number. What they do
/// is done as often as in the programs of the plan. Complexity: O(parts), for models with millions of buckets, too.
StepProgram make_step_outline(ShardPlan const& plan);

/// The programs of a dedicated server, whichever rank the plan is of: what a worker does, but for what needs data,
/// activations or a worker's own gradients. So collectives come in one order, and it is the same on all ranks. Where
/// servers update unit by unit, a server has a step of its own (priority_program.hpp).
StepProgram make_server_program(ShardPlan plan);

} // namespace trainstone
