#include "parallel/program/priority_program.hpp"

#include "model/parameter_table.hpp"

#include <cstddef>
#include <utility>

namespace trainstone {

namespace {

void append(Instructions& list, Instructions const& more) { list.insert(list.end(), more.begin(), more.end()); }

Instruction wait_for(Instruction start) {
  start.started = std::exchange(start.act, Act::wait);
  return start;
}

/// The reductions of a unit's buckets, in the order in which backward completes them.
Instructions pushes_of(Index unit, ShardPlan const& plan, GradientPass::Buckets buckets) {
  Index const number = plan.reductions.buckets.run_of_unit(unit);
  BucketRun const& run = plan.reductions.buckets.runs[static_cast<std::size_t>(number)];
  bool const all = buckets == GradientPass::Buckets::all;
  Instructions pushes;
  for (Index i = 0; i < (all ? run.buckets : 1); ++i) {
    Index const bucket = all ? run.first_bucket + i : number;
    pushes.push_back({.act = Act::reduce,
                      .subject = bucket,
                      .micro_batch = plan.layout.rank_micro_batches - 1,
                      .slot = bucket % plan.reductions.in_flight});
  }
  return pushes;
}

/// No run has several units.
Index unit_of_push(Instruction const& push, ShardPlan const& plan, GradientPass::Buckets buckets) {
  bool const all = buckets == GradientPass::Buckets::all;
  Index const run = all ? plan.reductions.buckets.bucket(push.subject).run : push.subject;
  return plan.reductions.buckets.runs[static_cast<std::size_t>(run)].first_unit;
}

Instruction publication_of(Index unit) { return {.act = Act::publish, .subject = unit, .slot = unit}; }

/// What makes a unit's parameters new, here or elsewhere.
Instructions update_of(Index unit, ShardPlan const& plan) {
  ParameterUnit const& entry = plan.layout.units[static_cast<std::size_t>(unit)];
  bool has_table = false;
  for (Index group = entry.first_group; group <= entry.last_group; ++group)
    has_table = has_table || plan.layout.groups[static_cast<std::size_t>(group)].number == token_table_group;
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
  Instructions out;
  for (Instruction const& instruction : order) {
    out.push_back(instruction);
    if (instruction.act != Act::reduce) continue;
    Index const unit = unit_of_push(instruction, plan, buckets);
    if (instruction.subject == pushes_of(unit, plan, buckets).back().subject) append(out, update_of(unit, plan));
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
