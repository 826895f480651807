#include "parallel/plan/gather_plan.hpp"

#include "kernels/norm_block.hpp"

#include <algorithm>
#include <utility>

namespace trainstone {

namespace {

/// Every owner has its shares of the parameters of a group.
PlannedCollective gather_of_group(AlgorithmChoice const& choice, StateLayout const& layout, Topology const& line,
                                  Index group) {
  std::optional<Rank> const owner = layout.ownership.owner(group);
  Collective const collective = owner ? Collective::broadcast : Collective::all_gather;
  Index const elements = layout.groups[static_cast<std::size_t>(group)].padded;
  PlannedCollective gather = planned_collective(choice, Axis::shard, line, collective, elements);
  gather.problem.root = owner.value_or(0);
  return gather;
}

/// By the default algorithm: of every owner the squared sums of the blocks of its shares.
PlannedCollective gather_of_norm(AlgorithmChoice choice, StateLayout const& layout, Topology const& line) {
  choice.comm = {};
  PlannedCollective gather = planned_collective(choice, Axis::shard, line, Collective::all_gather, 0);
  std::vector<Index> blocks;
  for (Index const element : layout.ownership.members_shares().offsets()) blocks.push_back(element / norm_block);
  gather.problem.partition = Partition::of_offsets(std::move(blocks));
  return gather;
}

} // namespace

std::optional<Axis> GatherPlan::sharers() const {
  return of_group.front() ? sharers_of(*of_group.front()) : std::nullopt;
}

std::vector<PlannedCollective const*> different_gathers(GatherPlan const& gathers) {
  std::vector<PlannedCollective const*> different;
  for (auto const& gather : gathers.of_group)
    if (gather && std::ranges::none_of(different, [&](auto const* other) { return are_alike(*gather, *other); }))
      different.push_back(&*gather);
  return different;
}

GatherPlan make_gather_plan(Index prefetch, AlgorithmChoice const& choice, StateLayout const& layout) {
  GatherPlan plan;
  plan.prefetch = prefetch;
  plan.slots = layout.sharding.parameters ? plan.in_flight() : 0;
  plan.after_update = !layout.sharding.parameters && layout.mesh.shard > 1;
  plan.of_group.resize(layout.groups.size());
  if (layout.mesh.shard == 1) return plan;
  Topology const line = layout.line(Axis::shard);
  for (std::size_t g = 0; g < layout.groups.size(); ++g)
    plan.of_group[g] = gather_of_group(choice, layout, line, static_cast<Index>(g));
  plan.norm = gather_of_norm(choice, layout, line);
  return plan;
}

} // namespace trainstone
