#include "parallel/plan/gather_plan.hpp"

#include "kernels/norm_block.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace trainstone {

namespace {

/// Where a share of a group lies in its unit. A server has memory for its own share alone, and the other shares of the
/// same size, which it never touches, have the same place.
Index begin_in_unit(StateLayout const& layout, ParameterUnit const& unit, Index group, Range const& share) {
  if (layout.serves()) return layout.share_offset(group) - layout.share_offset(unit.first_group);
  return layout.groups[static_cast<std::size_t>(group)].offset - unit.offset + share.begin;
}

/// Of whole units.
Collective gathering(StateLayout const& layout) {
  if (layout.mesh.servers > 0) return Collective::server_pull;
  return layout.ownership.owner(0) ? Collective::broadcast : Collective::all_gather; // all groups have one, or none
}

/// Every owner has its shares of the unit's groups, which are one block of the collective.
UnitGather gather_of_unit(PlannedCollective const& planned, StateLayout const& layout, ParameterUnit const& unit) {
  std::optional<Rank> const owner = layout.ownership.owner(unit.first_group);
  UnitGather gather{planned, {}};
  gather.planned.problem.root = owner.value_or(0);
  if (owner || (unit.first_group == unit.last_group && !layout.serves())) return gather;
  for (Rank member = 0; member < layout.mesh.shard; ++member)
    for (Index group = unit.first_group; group <= unit.last_group; ++group) {
      Range const share = layout.ownership.share(group, member);
      Index const begin = begin_in_unit(layout, unit, group, share);
      gather.pieces.append({begin, begin + share.size()});
    }
  return gather;
}

/// The same range of every server's shares of the unit's groups, side by side.
UnitGather gather_of_slice(AlgorithmChoice const& choice, StateLayout const& layout, Topology const& line,
                           ParameterUnit const& unit, Range const& slice) {
  UnitGather gather{
      planned_collective(choice, Axis::shard, line, Collective::server_pull, slice.size() * layout.ownership.owners()),
      {}};
  for (Rank member = layout.mesh.shard - layout.mesh.servers; member < layout.mesh.shard; ++member) {
    Index before = 0; // of the shares of earlier groups
    for (Index group = unit.first_group; group <= unit.last_group; ++group) {
      Range const share = layout.ownership.share(group, member);
      Range const taken{std::clamp<Index>(slice.begin - before, 0, share.size()),
                        std::clamp<Index>(slice.end - before, 0, share.size())};
      Index const begin = begin_in_unit(layout, unit, group, share);
      if (!taken.empty()) gather.pieces.append({begin + taken.begin, begin + taken.end});
      before += share.size();
    }
  }
  return gather;
}

/// As long as those of the unit's gradients.
std::vector<UnitGather> slices_of_unit(AlgorithmChoice const& choice, StateLayout const& layout, Topology const& line,
                                       ParameterUnit const& unit, BucketRun const& pushed) {
  Index const share = unit.padded / layout.ownership.owners();
  Index const slice = pushed.share > 0 ? pushed.slice : share;
  std::vector<UnitGather> slices;
  for (Index begin = 0; begin < share; begin += slice)
    slices.push_back(gather_of_slice(choice, layout, line, unit, {begin, std::min(begin + slice, share)}));
  return slices;
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
  return of_unit.front().empty() ? std::nullopt : sharers_of(of_unit.front().front().planned);
}

bool are_alike(UnitGather const& gather, UnitGather const& other) {
  if (!are_alike(gather.planned, other.planned)) return false;
  return gather.planned.problem.collective == Collective::server_pull || gather.pieces == other.pieces;
}

std::vector<UnitGather const*> different_gathers(GatherPlan const& gathers) {
  std::vector<UnitGather const*> different;
  for (std::vector<UnitGather> const& unit : gathers.of_unit)
    for (UnitGather const& gather : unit)
      if (std::ranges::none_of(different, [&](auto const* other) { return are_alike(gather, *other); }))
        different.push_back(&gather);
  return different;
}

GatherPlan make_gather_plan(Index prefetch, BucketPlan const* pushed, AlgorithmChoice const& choice,
                            StateLayout const& layout) {
  GatherPlan plan;
  plan.by_priority = pushed != nullptr;
  plan.prefetch = plan.by_priority ? std::ssize(layout.units) - 1 : prefetch;
  plan.slots = layout.sharding.parameters ? plan.in_flight() : 0;
  plan.after_update = !layout.sharding.parameters && layout.mesh.shard > 1;
  plan.of_unit.resize(layout.units.size());
  if (layout.mesh.shard == 1) return plan;
  Topology const line = layout.line(Axis::shard);
  std::map<Index, PlannedCollective> of_size; // most units have one size, and share the partition over very many ranks
  for (std::size_t u = 0; u < layout.units.size(); ++u) {
    ParameterUnit const& unit = layout.units[u];
    if (!pushed) {
      auto const [planned, is_new] = of_size.try_emplace(unit.padded);
      if (is_new) planned->second = planned_collective(choice, Axis::shard, line, gathering(layout), unit.padded);
      plan.of_unit[u].push_back(gather_of_unit(planned->second, layout, unit));
      continue;
    }
    Index const run = pushed->run_of_unit(static_cast<Index>(u));
    plan.of_unit[u] = slices_of_unit(choice, layout, line, unit, pushed->runs[static_cast<std::size_t>(run)]);
  }
  plan.norm = gather_of_norm(choice, layout, line);
  return plan;
}

} // namespace trainstone
