#include "train/plan/pipeline_prediction.hpp"

#include "comm/simulation/simulator.hpp"
#include "core/error.hpp"
#include "parallel/pipeline/pipeline_bound.hpp"
#include "parallel/plan/pipeline_plan.hpp"
#include "train/plan/run_plan.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace trainstone {

namespace {

constexpr double nanosecond = 1e-9;

Ticks ticks(double seconds) { return std::llround(seconds / nanosecond); }

/// All but the head, which turns round in the last forward.
ChunkPrice price_of_chunk(PartTable const& table, Index chunk, PartTimes const& parts) {
  double forward = 0, backward = 0;
  Range const numbers = table.chunk_parts(chunk);
  for (Index number = numbers.begin; number < numbers.end; ++number) {
    Part const part = table[number];
    if (part.kind == PartKind::head) continue;
    PartTimes::OfPart const& times = parts.of(part.kind);
    Recompute const again = table.recompute(part);
    forward += times.forward;
    backward += times.backward_adding + (again == Recompute::none ? 0 : times.recompute(again));
  }
  return {.forward = ticks(forward), .backward = ticks(backward)};
}

/// In nanoseconds: what parts of every chunk take, with what their blocks compute again, and the slowest message of
/// the residual stream between two stages.
PipelinePrices pipeline_prices(std::vector<RunPlan> const& stages, PartTimes const& parts, MachineModel const& machine,
                               EmulatedNetwork const& network) {
  PipelinePrices prices;
  for (RunPlan const& plan : stages) {
    std::vector<ChunkPrice>& of_stage = prices.chunks.emplace_back();
    for (Index chunk = 0; chunk < plan.parallel.parts.chunks(); ++chunk)
      of_stage.push_back(price_of_chunk(plan.parallel.parts, chunk, parts));
    PlannedCollective const message = planned_message(plan.parallel.pipeline, plan.parallel.layout,
                                                      MessageKind::activation, plan.parallel.pipeline.stage);
    std::size_t const element_bytes = bytes_per_value(plan.parallel.layout.types.parameters);
    double const bytes = static_cast<double>(message.problem.elements()) * static_cast<double>(element_bytes);
    double const seconds = price(message.problem, message.algorithm, element_bytes, machine) + network.seconds(bytes);
    prices.message = std::max(prices.message, ticks(seconds)); // of the slowest pair of neighbours
  }
  PartTimes::OfPart const& head = parts.of(PartKind::head);
  prices.head = ticks(head.forward + parts.loss + head.backward_adding);
  return prices;
}

} // namespace

PipelinePrediction predict_pipeline(ResolvedRun const& run, PartTimes const& parts, MachineModel const& machine) {
  TRAINSTONE_REQUIRE_INPUT(run.mesh.pipeline > 1, "the run has {} stage and no pipeline", run.mesh.pipeline);
  std::vector<RunPlan> const stages = plan_stages(run);
  PipelinePrices const prices = pipeline_prices(stages, parts, machine, run.config.comm.emulated_network());
  PipelineProgram const program = training_pipeline(run.config.parallel, run.config.batch.accumulation);
  PipelineTimeline const timeline = play_pipeline(program, prices);
  auto const seconds = [](Ticks time) { return nanosecond * static_cast<double>(time); };
  return {.seconds = seconds(timeline.time),
          .idle_share = timeline.idle_share(),
          .bound_seconds = seconds(pipeline_bound(program.shape, program.splits_backward, prices))};
}

std::string to_string(PipelinePrediction const& prediction) {
  return fmt::format("pipeline: {:.4g} s, of which the stages idle {:.1f} %; no order of these stages takes less than "
                     "{:.4g} s",
                     prediction.seconds, 100 * prediction.idle_share, prediction.bound_seconds);
}

} // namespace trainstone
