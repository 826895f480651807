#include "parallel/step_order.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <iterator>

namespace trainstone {

Index run_of_group(ShardPlan const& plan, Index group) {
  auto const& runs = plan.buckets.runs;
  auto const run = std::ranges::find_if(
      runs, [=](BucketGroup const& one) { return one.first_group <= group && group <= one.last_group; });
  TRAINSTONE_REQUIRE(run != runs.end(), "group {} is in none of {} runs", group, runs.size());
  return std::distance(runs.begin(), run);
}

std::optional<Index> run_to_reduce(ShardPlan const& plan, Index group, Index micro_batch) {
  Index const run = run_of_group(plan, group);
  bool const complete = group == plan.buckets.runs[static_cast<std::size_t>(run)].first_group;
  bool const reduces = plan.reduce_each || micro_batch + 1 == plan.turns;
  return complete && reduces ? std::optional(run) : std::nullopt;
}

bool share_memory(ShardPlan const& plan, Index run, Index other) {
  return plan.run_memory(run).overlaps(plan.run_memory(other));
}

bool share_scratch(ShardPlan const& plan, Index bucket, Index other) {
  return bucket % plan.in_flight == other % plan.in_flight;
}

} // namespace trainstone
