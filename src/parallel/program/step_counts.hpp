#pragma once

// Counts what programs do: their collectives, each with how often it runs, and the kernels that the engine starts for
// them. The plans of a run and its checks come from these counts. All functions take the instructions of an outline
// (make_step_outline) and count every bucket of a run. Pure functions. The cost grows neither with the number of
// buckets nor with that of micro-batches.

#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/instruction.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace trainstone {

/// A collective that a rank runs several times, each time alike.
struct RepeatedCollective {
  std::string_view what; ///< "gradients"
  PlannedCollective planned;
  std::size_t element_bytes;
  Pieces pieces = {}; ///< of the data
  std::uint64_t times = 1;
};

/// The collectives that the instructions start, without publications: reductions of gradients, gathers of parameters,
/// then messages that this rank sends to other stages, and the sum of the token table's gradient over two stages. Equal
/// ones are one row.
std::vector<RepeatedCollective> collectives_of(std::vector<Segment> const& segments, ShardPlan const& plan);

/// The collectives that follow an update: those that it starts, and those that the next forward starts because of it.
std::vector<RepeatedCollective> publications_of(StepProgram const& outline, ShardPlan const& plan);

/// Kernels that the engine starts for the instructions, those inside of collectives included. Not the kernels of parts,
/// of losses, of the update, and of publications.
std::uint64_t launches_of(std::vector<Segment> const& segments, ShardPlan const& plan);
/// Where this rank's share of a group begins among summed gradients.
Index gradient_begin(ShardPlan const& plan, Index group);
/// Kernels inside of collectives.
std::uint64_t launches_of(std::vector<RepeatedCollective> const& all, ShardPlan const& plan);

/// What the gathers of these segments bring of shares that do not lie with the kernels.
StateMoves moves_of(std::vector<Segment> const& segments, ShardPlan const& plan);

} // namespace trainstone
