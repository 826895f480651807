#include "train/plan/pipeline_prediction.hpp"

#include "parallel/pipeline/pipeline_bound.hpp"
#include "parallel/plan/pipeline_plan.hpp"
#include "parallel/program/step_programs.hpp"
#include "train/plan/run_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace trainstone {

namespace {

/// What a chunk computes of one micro-batch.
struct ChunkTimes {
  Ticks forward = 0, head = 0, backward = 0;
};

using StageTimesByWork = std::map<std::pair<Index, Index>, ChunkTimes>; ///< by chunk and micro-batch

/// Loss and head's backward turn round in the last forward.
void add(ChunkTimes& times, Instruction const& one, PartTable const& parts, Ticks price) {
  bool const of_head = one.act == Act::loss || parts[one.subject].kind == PartKind::head;
  if (of_head)
    times.head += price;
  else if (one.act == Act::forward)
    times.forward += price;
  else
    times.backward += price;
}

StageTimesByWork times_of_stage(RunPlan const& plan, std::size_t number_of_class, StepPrices& prices) {
  PartTable const& parts = plan.parallel.parts;
  StageTimesByWork times;
  for_each_instruction(make_step_program(plan.parallel).step, [&](Instruction const& one) {
    bool const computes = one.act == Act::forward || one.act == Act::backward || one.act == Act::recompute;
    if (!computes && one.act != Act::loss) return;
    Index const chunk = parts.chunk_of(computes ? one.subject : parts.size() - 1);
    add(times[{chunk, one.micro_batch}], one, parts, prices.of(number_of_class, one).compute);
  });
  return times;
}

/// Prices of chunks that take one value of those of all micro-batches.
struct BothPrices {
  PipelinePrices mean, least;
};

void add_stage(BothPrices& both, StageTimesByWork const& times, Index chunks, Index micro_batches) {
  auto const of = [&](Index chunk, Ticks ChunkTimes::* part) {
    Ticks sum = 0, least = times.at({chunk, 0}).*part;
    for (Index micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      Ticks const one = times.at({chunk, micro_batch}).*part;
      sum += one;
      least = std::min(least, one);
    }
    return std::pair(sum / micro_batches, least);
  };
  std::vector<ChunkPrice>&mean = both.mean.chunks.emplace_back(), &least = both.least.chunks.emplace_back();
  for (Index chunk = 0; chunk < chunks; ++chunk) {
    auto const [forward, least_forward] = of(chunk, &ChunkTimes::forward);
    auto const [backward, least_backward] = of(chunk, &ChunkTimes::backward);
    auto const [head, least_head] = of(chunk, &ChunkTimes::head);
    mean.push_back({.forward = forward, .backward = backward});
    least.push_back({.forward = least_forward, .backward = least_backward});
    both.mean.head = std::max(both.mean.head, head); // of the last stage alone
    both.least.head = std::max(both.least.head, least_head);
  }
}

Ticks message_price(std::vector<RunPlan> const& stages, StepPrices& prices, std::vector<std::size_t> const& classes) {
  Ticks slowest = 0; // of all pairs of neighbours
  for (std::size_t stage = 0; stage + 1 < stages.size(); ++stage) {
    Instruction const send{.act = Act::send, .subject = static_cast<Index>(MessageKind::activation), .piece = 0};
    CollectivePrice const message = prices.of(classes[stage], send).collectives.front();
    slowest = std::max(slowest, message.core + message.wire);
  }
  return slowest;
}

} // namespace

PipelinePrediction predict_pipeline(ParallelConfig const& parallel, std::vector<RunPlan> const& stages,
                                    PartTimes const& parts, MachineModel const& machine,
                                    EmulatedNetwork const& network) {
  StepPrices prices = step_prices(stages, parts, machine, network);
  std::vector<std::size_t> classes(stages.size()); // of each stage, a class of its ranks
  for (std::size_t number = prices.classes().size(); number-- > 0;)
    classes[static_cast<std::size_t>(prices.classes()[number].stage)] = number;
  PipelineShape const& shape = stages.front().parallel.pipeline.shape;
  BothPrices both;
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    add_stage(both, times_of_stage(stages[stage], classes[stage], prices), shape.chunks, shape.micro_batches);
  both.mean.message = message_price(stages, prices, classes);
  PipelineProgram const program = training_pipeline(parallel, shape.micro_batches);
  PipelineTimeline const timeline = play_pipeline(program, both.mean);
  auto const seconds = [](Ticks time) { return 1e-9 * static_cast<double>(time); };
  return {.seconds = seconds(timeline.time),
          .idle_share = timeline.idle_share(),
          .bound_seconds = seconds(pipeline_bound(program.shape, program.splits_backward, both.least))};
}

std::string to_string(PipelinePrediction const& prediction) {
  return fmt::format("pipeline: {:.4g} s, of which the stages idle {:.1f} %; no order of these stages takes less than "
                     "{:.4g} s",
                     prediction.seconds, 100 * prediction.idle_share, prediction.bound_seconds);
}

} // namespace trainstone
