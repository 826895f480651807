#include "parallel/program/step_programs.hpp"

#include "parallel/program/passes.hpp"

#include <algorithm>

namespace trainstone {

namespace {

void append(Instructions& list, Instructions const& more) { list.insert(list.end(), more.begin(), more.end()); }

/// Whether updated parameters are still on their way when the next forward begins.
bool publishes_ahead(ShardPlan const& plan) { return plan.gathers.after_update && plan.overlap; }

Instructions micro_batch(ShardPlan const& plan, Index number, GradientPass& gradients) {
  Instructions list = with_recomputation(training_order(plan.parts, number), plan.parts);
  if (plan.layout.sharding.parameters) list = with_gathers(list, plan);
  if (publishes_ahead(plan) && number == 0) list = with_publication(list, plan);
  return gradients(list);
}

/// All micro-batches of a step that has `micro_batches` of them, and what follows the last one.
std::vector<Instructions> unrolled(ShardPlan const& plan, Index micro_batches, GradientPass::Buckets buckets) {
  GradientPass gradients(plan, micro_batches, buckets);
  std::vector<Instructions> all;
  for (Index number = 0; number < micro_batches; ++number) all.push_back(micro_batch(plan, number, gradients));
  append(all.back(), gradients.finish());
  return all;
}

Instructions shifted(Instructions list, Index micro_batches) {
  for (Instruction& instruction : list) instruction = later(instruction, micro_batches);
  return list;
}

/// The micro-batches between the first ones and the last one are alike, but for their number: from some micro-batch on
/// the same reductions are in flight at the beginning of each.
std::vector<Segment> compressed(ShardPlan const& plan, GradientPass::Buckets buckets) {
  std::vector<Segment> segments;
  for (Index few = 4;; ++few) {
    std::vector<Instructions> const all = unrolled(plan, std::min(few, plan.layout.rank_micro_batches), buckets);
    std::size_t const last = all.size() - 1;
    bool const repeats = few < plan.layout.rank_micro_batches && all[last - 1] == shifted(all[last - 2], 1);
    if (!repeats && few < plan.layout.rank_micro_batches) continue;
    for (std::size_t i = 0; i < last; ++i) segments.push_back({all[i]});
    if (repeats) segments.back().times = plan.layout.rank_micro_batches - few + 1;
    segments.push_back({shifted(all[last], plan.layout.rank_micro_batches - static_cast<Index>(all.size()))});
    return segments;
  }
}

StepProgram make_program(ShardPlan const& plan, GradientPass::Buckets buckets) {
  StepProgram program;
  program.step.push_back({{{.act = Act::load, .micro_batch = 0}}, plan.layout.rank_micro_batches});
  for (Segment& segment : compressed(plan, buckets)) program.step.push_back(std::move(segment));
  append(program.step.back().instructions, {{.act = Act::agree}, {.act = Act::norm}});

  program.update.push_back({{{.act = Act::update}}});
  if (plan.gathers.after_update) append(program.update.back().instructions, publication_after_update(plan));

  Instructions evaluation = evaluation_order(plan.parts, 0);
  if (plan.layout.sharding.parameters) evaluation = with_gathers(evaluation, plan);
  if (publishes_ahead(plan)) evaluation = with_publication(evaluation, plan);
  evaluation.insert(evaluation.begin(), {.act = Act::load, .micro_batch = 0});
  program.evaluation.push_back({evaluation});
  return program;
}

} // namespace

StepProgram make_step_program(ShardPlan const& plan) { return make_program(plan, GradientPass::Buckets::all); }

StepProgram make_step_outline(ShardPlan const& plan) { return make_program(plan, GradientPass::Buckets::one_per_run); }

} // namespace trainstone
