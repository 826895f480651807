#include "parallel/program/step_launches.hpp"
#include "parallel/program/shard_traffic.hpp"

#include "kernels/update_piece.hpp"
#include "parallel/plan/decay_runs.hpp"
#include "parallel/program/step_counts.hpp"
#include "parallel/program/step_programs.hpp"

namespace trainstone {

std::uint64_t engine_step_launches(ShardPlan const& plan) { return launches_of(make_step_outline(plan).step, plan); }

namespace {

/// By group: the first group of those whose shares an update takes at once, because they lie side by side among
/// gradients and among parameters. The optimizer's vectors have nothing between shares.
std::vector<Index> joint_groups(ShardPlan const& plan) {
  StateLayout const& layout = plan.layout;
  std::vector<Index> first_of;
  Index before = -1; // the last one with a share
  for (Index group = 0; group < std::ssize(layout.groups); ++group) {
    Index const size = layout.share(group).size();
    auto const follows = [&](auto const& begin) { return begin(group) == begin(before) + layout.share(before).size(); };
    bool const joins = size > 0 && before >= 0 && !plan.offload.has_chunks() &&
                       (!plan.by_priority() || layout.unit_of(group) == layout.unit_of(before)) &&
                       follows([&](Index g) { return gradient_begin(plan, g); }) &&
                       follows([&](Index g) { return layout.share_begin(g, layout.keeps_shares_of_parameters()); });
    first_of.push_back(joins ? first_of[static_cast<std::size_t>(before)] : group);
    if (size > 0) before = group;
  }
  return first_of;
}

} // namespace

std::uint64_t engine_update_launches(ShardPlan const& plan, ParameterTable const& table) {
  std::vector<Index> const joint = joint_groups(plan);
  std::uint64_t const of_part = plan.layout.types.gradient_copy ? 2 : 1;
  std::uint64_t parts = 0; // of chunks, of so many pieces
  Index first = -1, chunk = -1, pieces = 0;
  for (DecayRun const& run : decay_runs(plan.layout, table))
    for (Range const& piece : chunks_of(plan.offload, run.range)) {
      Index const number = plan.offload.has_chunks() ? piece.begin / plan.offload.chunk : 0;
      Index const first_here = joint[static_cast<std::size_t>(run.group)];
      if (first_here != first || number != chunk || pieces == most_update_pieces) {
        ++parts;
        first = first_here;
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
