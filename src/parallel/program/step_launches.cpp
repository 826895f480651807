#include "parallel/program/step_launches.hpp"
#include "parallel/program/shard_traffic.hpp"

#include "parallel/plan/tensor_share.hpp"
#include "parallel/program/step_counts.hpp"
#include "parallel/program/step_programs.hpp"

namespace trainstone {

std::uint64_t engine_step_launches(ShardPlan const& plan) { return launches_of(make_step_outline(plan).step, plan); }

std::uint64_t engine_update_launches(ShardPlan const& plan, ParameterTable const& table) {
  std::uint64_t const of_part = plan.layout.types.gradient_copy ? 2 : 1;
  std::uint64_t parts = 0; // of tensors: those in chunks
  for (TensorShare const& share : tensor_shares(plan.layout, table))
    parts += static_cast<std::uint64_t>(std::ssize(chunks_of(plan.offload, share.range)));
  return of_part * parts + launches_of(update_collectives(plan), plan);
}

std::uint64_t engine_evaluation_launches(ShardPlan const& plan) {
  return launches_of(make_step_outline(plan).evaluation, plan);
}

} // namespace trainstone
