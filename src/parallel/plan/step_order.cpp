#include "parallel/plan/step_order.hpp"

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

bool share_memory(ShardPlan const& plan, Index run, Index other) {
  return plan.run_memory(run).overlaps(plan.run_memory(other));
}

bool share_scratch(ShardPlan const& plan, Index bucket, Index other) {
  return bucket % plan.in_flight == other % plan.in_flight;
}

bool are_alike(PlannedCollective const& gather, PlannedCollective const& other) {
  return gather.problem.elements() == other.problem.elements() && gather.problem.root == other.problem.root;
}

std::vector<Index> shape_of(ShardPlan const& plan, Bucket const& bucket) {
  std::vector<Index> shape{plan.ownership.owner(bucket.parts.front().group).value_or(-1)};
  for (BucketPart const& part : bucket.parts)
    shape.insert(shape.end(),
                 {plan.groups[static_cast<std::size_t>(part.group)].padded, part.of_share.begin, part.of_share.end});
  return shape;
}

} // namespace trainstone
