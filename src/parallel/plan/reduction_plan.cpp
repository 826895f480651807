#include "parallel/plan/reduction_plan.hpp"

#include "parallel/plan/strategies.hpp"

#include <algorithm>
#include <bit>
#include <set>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// What a bucket has of one owner's shares, gradient by gradient. A server has memory for its own share alone, and the
/// other shares of the same size, which it never touches, have the same place.
void append_member(Pieces& pieces, ReductionPlan const& reductions, StateLayout const& layout, Bucket const& bucket,
                   Rank member) {
  Index const begin = reductions.buckets.runs[at(bucket.run)].memory.begin;
  for (BucketPart const& part : bucket.parts) {
    Range const share = layout.ownership.share(part.group, member);
    if (share.empty()) continue;
    Index const in_gradient = layout.serves() ? 0 : share.begin;
    Index const first = reductions.gradients.gradients[at(part.gradient)].offset - begin + in_gradient;
    pieces.append({first + part.of_share.begin, first + part.of_share.end});
  }
}

BucketReduction plan_collectives(ParallelConfig const& parallel, AlgorithmChoice const& choice,
                                 StateLayout const& layout) {
  BucketReduction reduction;
  auto const add = [&](Axis axis, Collective collective) {
    if (layout.mesh.size(axis) > 1)
      reduction.push_back(planned_collective(choice, axis, layout.line(axis), collective, 0));
  };
  bool const all_reduces = parallel.gradient_reduction == GradientReductionWay::all_reduce;
  bool const to_one = layout.ownership.owner(0).has_value();
  if (layout.mesh.servers > 0) {
    add(Axis::shard, Collective::server_push);
    return reduction;
  }
  add(Axis::shard, all_reduces ? Collective::all_reduce : to_one ? Collective::reduce : Collective::reduce_scatter);
  if (row_of(parallel.strategy).collects()) {
    add(Axis::replica, Collective::reduce);
    add(Axis::replica, Collective::broadcast);
  } else {
    add(Axis::replica, Collective::all_reduce);
  }
  return reduction;
}

/// Of a server: the same buckets, and memory for its shares.
void keep_shares_alone(ReductionPlan& plan, StateLayout const& layout, std::optional<Index> in_two_parts) {
  plan.gradients = make_gradient_layout(layout, in_two_parts, GradientsKept::shares);
  for (BucketRun& run : plan.buckets.runs)
    run.memory = {plan.gradients.units[at(run.first_unit)].memory.begin,
                  plan.gradients.units[at(run.last_unit)].memory.end};
}

/// The first axis along which memory of fresh gradients, or of sums, is shared.
std::optional<Axis> sharers(ReductionPlan const& reductions, bool of_sums) {
  for (PlannedCollective const& step : reductions.collectives)
    if (reductions.is_of_sums(step) == of_sums)
      if (std::optional<Axis> const axis = sharers_of(step)) return axis;
  return std::nullopt;
}

} // namespace

BucketReduction ReductionPlan::reduction_of(Bucket const& bucket, StateLayout const& layout) const {
  BucketReduction sized = collectives;
  Index const share = bucket.share_elements();
  for (PlannedCollective& step : sized) {
    Index const elements = step.axis == Axis::shard ? share * layout.ownership.owners() : share;
    step.problem.partition = has_servers(step.problem.collective)
                                 ? server_partition(elements, step.problem.workers(), step.problem.servers)
                                 : Partition::even(elements, layout.mesh.size(step.axis));
    if (step.axis == Axis::shard && has_root(step.problem.collective))
      step.problem.root = layout.ownership.owner(bucket.parts.front().group).value_or(0);
  }
  return sized;
}

Pieces ReductionPlan::pieces_of(Bucket const& bucket, PlannedCollective const& step, StateLayout const& layout) const {
  Pieces pieces;
  if (is_of_sums(step)) return pieces;
  for (Rank owner = 0; owner < layout.mesh.shard; ++owner)
    if (step.axis == Axis::shard || owner == layout.member()) append_member(pieces, *this, layout, bucket, owner);
  return pieces;
}

Range ReductionPlan::run_memory(Index run) const {
  Range const flat = buckets.runs[at(run)].memory;
  if (!fresh_gradients_apart) return flat;
  Index const last = std::ssize(buckets.runs) - 1, of_root = root_lives_long ? buckets.runs.back().memory.size() : 0;
  if (root_lives_long && run == last) return {0, flat.size()};
  Index slot = 0;
  for (Index other = 0; other < last + (root_lives_long ? 0 : 1); ++other)
    slot = std::max(slot, buckets.runs[at(other)].memory.size());
  Index const begin = of_root + run % in_flight * slot;
  return {begin, begin + flat.size()};
}

Index ReductionPlan::fresh_offset(Index gradient, Index run) const {
  return run_memory(run).begin + gradients.gradients[at(gradient)].offset - buckets.runs[at(run)].memory.begin;
}

Index ReductionPlan::slice_begin(BucketRun const& run, Index number) const {
  Index begin = run.slice_of_share(number).begin; // in the shares of the unit's gradients, side by side
  Index gradient = run.gradients.begin;
  for (; begin >= buckets.shares[at(gradient)].elements; ++gradient) begin -= buckets.shares[at(gradient)].elements;
  return gradients.gradients[at(gradient)].offset - run.memory.begin + begin;
}

Index ReductionPlan::fresh_elements() const {
  if (!fresh_gradients_apart) return 0;
  Index end = 0;
  for (Index run = 0; run < std::ssize(buckets.runs); ++run) end = std::max(end, run_memory(run).end);
  return end;
}

std::optional<Axis> ReductionPlan::sharers_of_fresh() const { return sharers(*this, false); }

std::optional<Axis> ReductionPlan::sharers_of_kept() const { return sharers(*this, fresh_gradients_apart); }

std::vector<Index> shape_of(Bucket const& bucket, StateLayout const& layout) {
  std::vector<Index> shape{layout.ownership.owner(bucket.parts.front().group).value_or(-1)};
  for (BucketPart const& part : bucket.parts)
    shape.insert(shape.end(), {layout.groups[at(part.group)].padded, part.of_share.begin, part.of_share.end});
  return shape;
}

std::vector<Bucket> different_buckets(ReductionPlan const& reductions, StateLayout const& layout) {
  std::vector<Bucket> different;
  std::set<std::vector<Index>> shapes;
  for (auto const& [bucket, count] : reductions.buckets.by_size())
    if (shapes.insert(shape_of(bucket, layout)).second) different.push_back(bucket);
  return different;
}

ReductionPlan make_reduction_plan(ParallelConfig const& parallel, AlgorithmChoice const& choice,
                                  ParameterTable const& table, StateLayout const& layout) {
  ReductionPlan plan;
  bool const each = parallel.reduce == ReduceWhen::each, several = layout.rank_micro_batches > 1;
  plan.in_flight = row_of(parallel.strategy).collects() ? 1 : parallel.in_flight;
  plan.reduce_each = layout.sharding.gradients || (each && several);
  plan.ordered = choice.ordered;
  if (plan.ordered && !layout.serves())
    plan.waiting_sums = std::bit_width(static_cast<std::uint64_t>(layout.rank_micro_batches)) - 1;
  plan.storage = plan.ordered ? Storage::fp32 : layout.types.gradients;
  plan.rounds_sums = plan.storage != layout.types.gradients;
  plan.across_on_sums = layout.sharding.gradients && layout.mesh.replica > 1 && !each;
  plan.fresh_gradients_apart = plan.reduce_each && (layout.sharding.gradients || several);
  bool const embed = table.stage().embed, head = table.stage().head;
  plan.root_lives_long = embed && head;
  plan.looks_up_alone = embed && !head;
  std::optional<Index> in_two_parts;
  if (plan.ordered && embed && head) in_two_parts = table.find(Tensor::wte).group;
  plan.gradients = make_gradient_layout(layout, in_two_parts);
  plan.buckets = make_buckets(table, layout, plan.gradients, parallel, bytes_per_value(plan.storage));
  plan.by_priority = has_priorities(parallel);
  plan.after_backward = has_dedicated_servers(parallel) && parallel.server_mode != ServerMode::sync;
  if (plan.by_priority) plan.in_flight = plan.buckets.buckets();
  if (layout.serves()) keep_shares_alone(plan, layout, in_two_parts);
  plan.collectives = plan_collectives(parallel, choice, layout);
  return plan;
}

} // namespace trainstone
