#include "parallel/step_launches.hpp"

#include "comm/execution/local_moves.hpp"
#include "parallel/step_order.hpp"
#include "parallel/tensor_share.hpp"

#include <algorithm>
#include <bit>

namespace trainstone {

namespace {

std::uint64_t count_of(Index value) { return static_cast<std::uint64_t>(value); }

/// One per group of the pass' sequence of which this rank has a share to copy.
std::uint64_t gather_launches(ShardPlan const& plan, Pass pass) {
  if (!plan.sharding.parameters) return 0;
  std::vector<Index> const groups = gather_sequence(plan, pass);
  return count_of(std::ranges::count_if(groups, [&](Index group) { return !plan.share(group).empty(); }));
}

/// Additions to and copies between the sums of 2^k micro-batches.
std::uint64_t fold_launches(ShardPlan const& plan, Index turn) {
  bool const last = turn + 1 == plan.turns;
  std::uint64_t const result =
      last && !plan.fresh_gradients_apart() ? 0 : 1; // waits for its partner, or becomes the step's sum
  return count_of(std::countr_one(count_of(turn))) + result;
}

/// What is added up on every turn, each by a launch or, in ordered mode, by those of a fold.
std::uint64_t sums_per_turn(ShardPlan const& plan) {
  if (plan.folds_in_place()) return count_of(std::ssize(plan.groups));
  if (!plan.fresh_gradients_apart()) return 0; // backward adds
  auto const has_share = [&](BucketPart const& part) { return !plan.share(part.group).empty(); };
  std::uint64_t parts = 0;
  for (auto const& [bucket, count] : plan.buckets.by_size())
    parts += count * count_of(std::ranges::count_if(bucket.parts, has_share));
  return parts;
}

std::uint64_t collective_launches(ShardPlan const& plan, std::vector<RepeatedCollective> const& all) {
  std::uint64_t kernels = 0;
  for (RepeatedCollective const& repeated : all)
    kernels += repeated.times * kernels_of(schedule_of(repeated.planned, plan.mesh, plan.rank), repeated.pieces);
  return kernels;
}

} // namespace

std::uint64_t engine_step_launches(ShardPlan const& plan) {
  std::uint64_t const groups = count_of(std::ssize(plan.groups));
  std::uint64_t norm = 2 * groups; // bringing a group's blocks together, and their tree
  for (Index group = 0; group < std::ssize(plan.groups); ++group) norm += plan.share(group).empty() ? 0 : 1;
  if (plan.norm_gather) norm += kernels_of(schedule_of(*plan.norm_gather, plan.mesh, plan.rank));
  std::uint64_t launches = norm + (plan.rounds_sums() ? groups : 0);
  std::uint64_t const sums = sums_per_turn(plan);
  for (Index turn = 0; turn < plan.turns; ++turn) launches += sums * (plan.ordered ? fold_launches(plan, turn) : 1);
  return launches + count_of(plan.turns) * gather_launches(plan, Pass::training) +
         collective_launches(plan, plan.step_collectives());
}

std::uint64_t engine_update_launches(ShardPlan const& plan, ParameterTable const& table) {
  std::uint64_t const of_tensor = plan.types.gradient_copy ? 2 : 1;
  return of_tensor * count_of(std::ssize(tensor_shares(plan, table))) +
         collective_launches(plan, plan.update_collectives());
}

std::uint64_t engine_evaluation_launches(ShardPlan const& plan) {
  return gather_launches(plan, Pass::evaluation) + collective_launches(plan, plan.evaluation_collectives());
}

} // namespace trainstone
