#include "parallel/program/step_programs.hpp"

#include "parallel/program/passes.hpp"
#include "parallel/program/pipeline_order.hpp"
#include "parallel/program/priority_program.hpp"

#include <algorithm>

namespace trainstone {

namespace {

/// Whether updated parameters are still on their way when the next forward begins.
bool publishes_ahead(ShardPlan const& plan) { return plan.gathers.after_update && plan.overlap; }

/// The order, with what is computed again and what moves parameters. \param[in] begins  whether the order is the first
/// one after an update
Instructions with_parameters(Instructions const& order, ShardPlan const& plan, bool begins) {
  Instructions list = with_recomputation(order, plan.parts);
  if (plan.layout.sharding.parameters) list = with_gathers(list, plan);
  if (publishes_ahead(plan) && begins && !plan.by_priority()) list = with_publication(list, plan);
  return list;
}

Instructions micro_batch(ShardPlan const& plan, Index number, GradientPass& gradients, GradientPass::Buckets buckets) {
  Instructions list = with_parameters(training_order(plan.parts, number), plan, number == 0);
  if (plan.by_priority() && number == 0) list = with_pulls(list, plan, buckets);
  list = gradients(list);
  if (plan.by_priority()) list = with_unit_updates(list, plan, buckets);
  return with_exchanges(list, plan);
}

/// The stages of a pipeline run several micro-batches at a time.
Instructions all_micro_batches(ShardPlan const& plan, GradientPass::Buckets buckets) {
  GradientPass gradients(plan, plan.layout.rank_micro_batches, buckets);
  Instructions const order = pipeline_order(plan.pipeline.training, plan.pipeline, plan.parts, true);
  Instructions list = gradients(with_parameters(order, plan, true));
  list = with_exchanges(list, plan);
  append(list, gradients.finish());
  return list;
}

/// All micro-batches of a step that has `micro_batches` of them, and what follows the last one.
std::vector<Instructions> unrolled(ShardPlan const& plan, Index micro_batches, GradientPass::Buckets buckets) {
  GradientPass gradients(plan, micro_batches, buckets);
  std::vector<Instructions> all;
  for (Index number = 0; number < micro_batches; ++number) all.push_back(micro_batch(plan, number, gradients, buckets));
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
  if (plan.pipeline.has_stages())
    program.step.push_back({all_micro_batches(plan, buckets)});
  else
    for (Segment& segment : compressed(plan, buckets)) program.step.push_back(std::move(segment));
  program.step.back().instructions.push_back({.act = Act::agree});
  if (!plan.by_priority()) {
    program.step.back().instructions.push_back({.act = Act::norm});
    program.update.push_back({{{.act = Act::update}}});
    if (plan.gathers.after_update) append(program.update.back().instructions, publication_after_update(plan));
  }

  Instructions const order = plan.pipeline.has_stages()
                                 ? pipeline_order(plan.pipeline.evaluation, plan.pipeline, plan.parts, false)
                                 : evaluation_order(plan.parts, 0);
  Instructions evaluation = with_parameters(order, plan, true);
  if (plan.by_priority()) evaluation = with_pulls(evaluation, plan, buckets);
  evaluation = with_exchanges(evaluation, plan);
  evaluation.insert(evaluation.begin(), {.act = Act::load, .micro_batch = 0});
  program.evaluation.push_back({evaluation});
  return program;
}

/// All but what needs data, activations or a worker's own gradients.
StepProgram program_of_server(StepProgram worker) {
  auto const is_of_workers = [](Instruction const& one) {
    return one.act == Act::load || computes(one.act) || one.act == Act::fold;
  };
  for (auto const list : {&StepProgram::step, &StepProgram::update, &StepProgram::evaluation}) {
    for (Segment& segment : worker.*list) std::erase_if(segment.instructions, is_of_workers);
    std::erase_if(worker.*list, [](Segment const& segment) { return segment.instructions.empty(); });
  }
  return worker;
}

StepProgram make_program_of_rank(ShardPlan const& plan, GradientPass::Buckets buckets) {
  StepProgram program = make_program(plan, buckets);
  if (!plan.layout.serves()) return program;
  program = program_of_server(program);
  if (plan.by_priority()) program.step = {Segment{server_step_by_priority(plan, buckets)}};
  return program;
}

} // namespace

StepProgram make_step_program(ShardPlan const& plan) { return make_program_of_rank(plan, GradientPass::Buckets::all); }

StepProgram make_step_outline(ShardPlan const& plan) {
  return make_program_of_rank(plan, GradientPass::Buckets::one_per_run);
}

StepProgram make_server_program(ShardPlan plan) {
  plan.layout.rank = plan.layout.mesh.ranks() - 1; // servers are the last ranks
  return make_step_program(plan);
}

} // namespace trainstone
