#include "train/extreme_plans.hpp"

#include "comm/extreme_ranks.hpp"

#include <set>
#include <utility>

namespace trainstone {

namespace {

/// All ranks, if few; else those that are extreme on an axis of the mesh, on the nodes, and all that own whole groups.
std::set<Rank> candidates(ShardPlan const& plan) {
  std::set<Rank> ranks;
  constexpr Rank few = 16;
  if (plan.mesh.ranks() <= few) {
    for (Rank rank = 0; rank < plan.mesh.ranks(); ++rank) ranks.insert(rank);
    return ranks;
  }
  auto const places = [&](Axis axis) { return extreme_ranks(plan.topology.of(plan.mesh.members(axis, plan.rank))); };
  std::vector<Rank> const replicas = places(Axis::replicate);
  for (Rank const member : places(Axis::shard))
    for (Rank const replica : replicas) ranks.insert(replica * plan.mesh.shard + member);
  for (Rank const rank : extreme_ranks(plan.topology)) ranks.insert(rank);
  for (Index group = 0; group < std::ssize(plan.groups); ++group)
    if (std::optional<Rank> const owner = plan.ownership.owner(group))
      for (Rank const replica : replicas) ranks.insert(replica * plan.mesh.shard + *owner);
  return ranks;
}

std::pair<std::uint64_t, std::uint64_t> sent(RunPlan const& plan) {
  Traffic const traffic = plan.step_sent() + plan.step_control();
  return {traffic.bytes, traffic.messages};
}

} // namespace

ExtremePlans plan_extremes(RunConfig const& config, Topology const& topology) {
  RunPlan const first = plan_run(config, 0, topology);
  ExtremePlans extremes{first, first};
  for (Rank const rank : candidates(first.parallel)) {
    if (rank == 0) continue;
    RunPlan plan = plan_run(config, rank, topology);
    if (sent(plan) > sent(extremes.busiest)) extremes.busiest = plan;
    if (plan.memory_bytes().total() > extremes.largest.memory_bytes().total()) extremes.largest = std::move(plan);
  }
  return extremes;
}

} // namespace trainstone
