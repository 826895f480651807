#include "parallel/program/step_launches.hpp"
#include "parallel/program/shard_traffic.hpp"

#include "kernels/update_piece.hpp"
#include "parallel/plan/decay_runs.hpp"
#include "parallel/program/step_counts.hpp"
#include "parallel/program/step_programs.hpp"

namespace trainstone {

std::uint64_t engine_step_launches(ShardPlan const& plan) { return launches_of(make_step_outline(plan).step, plan); }

std::uint64_t engine_update_launches(ShardPlan const& plan, ParameterTable const& table) {
  std::uint64_t const of_part = plan.layout.types.gradient_copy ? 2 : 1;
  std::uint64_t parts = 0; // of chunks, of so many pieces
  Index group = -1, chunk = -1, pieces = 0;
  for (DecayRun const& run : decay_runs(plan.layout, table))
    for (Range const& piece : chunks_of(plan.offload, run.range)) {
      Index const number = plan.offload.has_chunks() ? piece.begin / plan.offload.chunk : 0;
      if (run.group != group || number != chunk || pieces == most_update_pieces) {
        ++parts;
        group = run.group;
        chunk = number;
        pieces = 0;
      }
      ++pieces;
    }
  return of_part * parts + launches_of(update_collectives(plan), plan);
}

std::uint64_t engine_evaluation_launches(ShardPlan const& plan) {
  return launches_of(make_step_outline(plan).evaluation, plan);
}

} // namespace trainstone
