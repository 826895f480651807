#include "train/plan/extreme_plans.hpp"

#include "comm/schedule/extreme_ranks.hpp"

#include <set>
#include <tuple>
#include <utility>

namespace trainstone {

namespace {

/// Indices on an axis: those that are extreme on the line of the plan's rank, and on the shard axis all that own whole
/// units.
std::vector<Rank> extreme_indices(StateLayout const& layout, Axis axis) {
  std::vector<Rank> indices = extreme_ranks(layout.line(axis));
  for (Index group = 0; axis == Axis::shard && group < std::ssize(layout.groups); ++group)
    if (std::optional<Rank> const owner = layout.ownership.owner(group)) indices.push_back(*owner);
  return indices;
}

/// All ranks, if few; else the ranks of the layout's stage that are extreme on the axes of the mesh, or on the nodes.
std::set<Rank> candidates(StateLayout const& layout) {
  std::set<Rank> ranks{layout.rank};
  constexpr Rank few = 16;
  if (layout.mesh.ranks() <= few) {
    for (Rank rank = 0; rank < layout.mesh.ranks(); ++rank) ranks.insert(rank);
    return ranks;
  }
  for (Axis const axis : axes) {
    if (axis == Axis::pipeline) continue; // stages differ in more than their place
    std::set<Rank> along;
    for (Rank const index : extreme_indices(layout, axis))
      for (Rank const rank : ranks) along.insert(layout.mesh.rank_at(axis, rank, index));
    ranks = std::move(along);
  }
  for (Rank const rank : extreme_ranks(layout.topology)) ranks.insert(rank);
  return ranks;
}

std::pair<std::uint64_t, std::uint64_t> sent(RunPlan const& plan) {
  Traffic const traffic = plan.step_sent() + plan.step_control();
  return {traffic.bytes, traffic.messages};
}

/// Ranks of stages that may be extreme. \param[in] stages  a rank of each \param[in] first  the layout of rank 0
std::set<Rank> candidates_of(ResolvedRun const& run, std::vector<Rank> const& stages, StateLayout const& first) {
  std::set<Rank> ranks;
  for (Rank const stage : stages)
    ranks.merge(candidates(stage == 0 ? first : plan_shards(run, run.table_of(stage), stage).layout));
  return ranks;
}

using Planner = RunPlan (*)(ResolvedRun const& run, Rank rank);

ExtremePlans plan_extremes(ResolvedRun const& run, std::vector<Rank> const& stages, Planner plan_of) {
  RunPlan const first = plan_of(run, 0);
  ExtremePlans extremes{first, first};
  for (Rank const rank : candidates_of(run, stages, first.parallel.layout)) {
    if (rank == 0) continue;
    RunPlan plan = plan_of(run, rank);
    if (sent(plan) > sent(extremes.busiest)) extremes.busiest = plan;
    if (plan.memory_bytes().total() > extremes.largest.memory_bytes().total()) extremes.largest = std::move(plan);
  }
  return extremes;
}

ExtremePlans plan_extremes(ResolvedRun const& run, Planner plan_of) {
  return plan_extremes(run, run.mesh.members(Axis::pipeline, 0), plan_of);
}

} // namespace

ExtremePlans plan_extremes(RunConfig const& config, Topology const& topology) {
  return plan_extremes(resolve_run(config, topology), plan_run);
}

ExtremePlans plan_extreme_traffic(ResolvedRun const& run) { return plan_extremes(run, plan_traffic); }

std::vector<Rank> first_of_kinds(ResolvedRun const& run) {
  std::set<std::tuple<bool, bool, std::vector<Index>, std::vector<Recompute>>> kinds;
  std::vector<Rank> ranks;
  for (std::size_t i = 0; i < run.stages.size(); ++i) {
    ModelStage const& stage = run.stages[i];
    std::vector<Recompute> recompute;
    for (Index const block : stage.blocks) recompute.push_back(run.config.model_options.recompute_of(block));
    if (kinds.emplace(stage.embed, stage.head, blocks_by_chunk(stage), recompute).second)
      ranks.push_back(run.mesh.rank_at(Axis::pipeline, 0, static_cast<Rank>(i)));
  }
  return ranks;
}

RunPlan plan_largest(ResolvedRun const& run) { return plan_extremes(run, first_of_kinds(run), plan_memory).largest; }

} // namespace trainstone
