#include "parallel/program/priority_program.hpp"

#include <cstddef>
#include <map>
#include <utility>

namespace trainstone {

namespace {

Instruction wait_for(Instruction start) {
  start.started = std::exchange(start.act, Act::wait);
  return start;
}

/// The numbers of a unit's buckets in a program. No run has several units.
Range buckets_of(Index unit, ShardPlan const& plan, GradientPass::Buckets buckets) {
  Index const number = plan.reductions.buckets.run_of_unit(unit);
  if (buckets == GradientPass::Buckets::one_per_run) return {number, number + 1};
  BucketRun const& run = plan.reductions.buckets.runs[static_cast<std::size_t>(number)];
  return {run.first_bucket, run.first_bucket + run.buckets};
}

/// The reductions of a unit's buckets, in the order in which backward completes them.
Instructions pushes_of(Index unit, ShardPlan const& plan, GradientPass::Buckets buckets) {
  Instructions pushes;
  Range const numbers = buckets_of(unit, plan, buckets);
  for (Index bucket = numbers.begin; bucket < numbers.end; ++bucket)
    pushes.push_back({.act = Act::reduce,
                      .subject = bucket,
                      .micro_batch = plan.layout.rank_micro_batches - 1,
                      .slot = bucket % plan.reductions.in_flight});
  return pushes;
}

Instruction publication_of(Index unit) { return {.act = Act::publish, .subject = unit, .slot = unit}; }

/// What makes a unit's parameters new, here or elsewhere.
Instructions update_of(Index unit, ShardPlan const& plan) {
  bool const has_table = unit == plan.layout.unit_of(plan.layout.table_group());
  Instructions list;
  if (has_table && plan.ties_table() && plan.layout.serves()) list.push_back({.act = Act::tie});
  list.push_back({.act = Act::update, .subject = unit});
  list.push_back(publication_of(unit));
  return list;
}

} // namespace

Instructions with_pulls(Instructions const& order, ShardPlan const& plan, GradientPass::Buckets buckets) {
  std::vector<Index> to_wait = units_by_use(plan.parts);
  Instructions out;
  for (Instruction const& instruction : order) {
    if (!to_wait.empty() && unit_read_by(instruction, plan.parts) == to_wait.front()) {
      if (!plan.layout.serves()) // a server waits in the same step
        for (Instruction const& push : pushes_of(to_wait.front(), plan, buckets)) out.push_back(wait_for(push));
      out.push_back(wait_for(publication_of(to_wait.front())));
      to_wait.erase(to_wait.begin());
    }
    out.push_back(instruction);
  }
  return out;
}

Instructions with_unit_updates(Instructions const& order, ShardPlan const& plan, GradientPass::Buckets buckets) {
  std::map<Index, Index> completed_by; // units, by their last bucket
  for (BucketRun const& run : plan.reductions.buckets.runs)
    completed_by[buckets_of(run.first_unit, plan, buckets).end - 1] = run.first_unit;
  Instructions out;
  for (Instruction const& instruction : order) {
    out.push_back(instruction);
    if (instruction.act != Act::reduce) continue;
    if (auto const unit = completed_by.find(instruction.subject); unit != completed_by.end())
      append(out, update_of(unit->second, plan));
  }
  return out;
}

Instructions server_step_by_priority(ShardPlan const& plan, GradientPass::Buckets buckets) {
  Instructions list;
  for (BucketRun const& run : plan.reductions.buckets.runs) append(list, pushes_of(run.first_unit, plan, buckets));
  std::vector<Index> const units = units_by_use(plan.parts);
  for (Index const unit : units) {
    for (Instruction const& push : pushes_of(unit, plan, buckets)) list.push_back(wait_for(push));
    append(list, update_of(unit, plan));
    if (unit == units.front()) list.push_back({.act = Act::agree});
  }
  for (Index const unit : units) list.push_back(wait_for(publication_of(unit)));
  return list;
}

} // namespace trainstone
