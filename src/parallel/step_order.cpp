#include "parallel/step_order.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace trainstone {

std::vector<Index> all_groups(ShardPlan const& plan) {
  std::vector<Index> groups(plan.groups.size());
  std::iota(groups.begin(), groups.end(), 0);
  return groups;
}

std::vector<Index> gather_sequence(ShardPlan const& plan, Pass pass) {
  std::vector<Index> order = all_groups(plan);
  order.push_back(0);
  if (pass == Pass::training)
    for (Index g = std::ssize(plan.groups) - 1; g > 0; --g) order.push_back(g);
  return order;
}

std::size_t gather_place(ShardPlan const& plan, Unit unit, Direction direction) {
  auto const blocks = plan.groups.size() - 1;
  auto const place = static_cast<std::size_t>(group_read_by(unit));
  if (unit.kind == UnitKind::head) return plan.sharding.parameters ? blocks + 1 : 0;
  return plan.sharding.parameters && direction == Direction::backward ? 2 * blocks + 2 - place : place;
}

std::vector<GatherAction> GatherOrder::begin(std::vector<Index> sequence) {
  TRAINSTONE_REQUIRE(m_acquired == m_started, "{} gathers of the last sequence are still under way",
                     m_started - m_acquired);
  m_sequence = std::move(sequence);
  m_started = m_acquired = 0;
  std::vector<GatherAction> actions;
  if (m_overlap) start_up_to(static_cast<std::size_t>(m_slots), actions);
  return actions;
}

std::vector<GatherAction> GatherOrder::acquire(std::size_t place) {
  TRAINSTONE_REQUIRE(place < m_sequence.size(), "place {} of {}", place, m_sequence.size());
  std::vector<GatherAction> actions;
  for (; m_acquired <= place; ++m_acquired) {
    start_up_to(m_acquired + 1, actions);
    actions.push_back({GatherAction::Kind::wait, m_acquired});
  }
  if (m_overlap) start_up_to(place + static_cast<std::size_t>(m_slots), actions);
  return actions;
}

void GatherOrder::start_up_to(std::size_t end, std::vector<GatherAction>& actions) {
  for (; m_started < std::min(end, m_sequence.size()); ++m_started)
    actions.push_back({GatherAction::Kind::start, m_started});
}

Index run_of_group(ShardPlan const& plan, Index group) {
  auto const& runs = plan.buckets.runs;
  auto const run = std::ranges::find_if(
      runs, [=](BucketGroup const& one) { return one.first_group <= group && group <= one.last_group; });
  TRAINSTONE_REQUIRE(run != runs.end(), "group {} is in none of {} runs", group, runs.size());
  return std::distance(runs.begin(), run);
}

bool reduces_after(ShardPlan const& plan, Index turn) { return plan.reduce_each || turn + 1 == plan.turns; }

std::optional<Index> run_to_reduce(ShardPlan const& plan, Index group, Index turn) {
  Index const run = run_of_group(plan, group);
  bool const complete = group == plan.buckets.runs[static_cast<std::size_t>(run)].first_group;
  return complete && reduces_after(plan, turn) ? std::optional(run) : std::nullopt;
}

bool share_memory(ShardPlan const& plan, Index run, Index other) {
  return plan.run_memory(run).overlaps(plan.run_memory(other));
}

bool share_scratch(ShardPlan const& plan, Index bucket, Index other) {
  return bucket % plan.in_flight == other % plan.in_flight;
}

} // namespace trainstone
