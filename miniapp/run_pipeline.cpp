#include "run_pipeline.hpp"

#include "comm/execution/control.hpp"

#include <algorithm>
#include <iterator>

namespace trainstone {

namespace {

/// One step of one stage as numbers in a row: the end, forward by chunk, backward by chunk.
std::size_t numbers_of(PipelineShape const& shape) { return 1 + 2 * static_cast<std::size_t>(shape.chunks); }

void pack(StageTimes const& times, double* numbers) {
  *numbers++ = times.until_end;
  std::ranges::copy(times.backward, std::ranges::copy(times.forward, numbers).out);
}

StageTimes unpack(double const* numbers, PipelineShape const& shape) {
  double const *const forward = numbers + 1, *const backward = forward + shape.chunks;
  return {.until_end = *numbers, .forward = {forward, backward}, .backward = {backward, backward + shape.chunks}};
}

/// What a message between stages takes on the emulated network, at most. Without one, a message has no time of its own:
/// its ends are on two ranks, whose clocks are not compared.
double message_seconds(PreparedRun const& run) {
  EmulatedNetwork const network = run.config().comm.emulated_network();
  Topology const stages = run.plan->parallel.layout.line(Axis::pipeline);
  auto const bytes = static_cast<double>(run.plan->parallel.pipeline.message_elements) *
                     static_cast<double>(bytes_per_value(run.plan->storage().values));
  double slowest = 0;
  for (Rank stage = 0; stage + 1 < stages.ranks(); ++stage)
    slowest = std::max(slowest, network.of(stages.link(stage, stage + 1)).seconds(bytes));
  return slowest;
}

} // namespace

std::optional<PipelineInfo> measured_pipeline(PreparedRun const& run, std::vector<StageTimes> const& own,
                                              RankContext& context) {
  if (own.empty()) return std::nullopt;
  PipelinePlan const& plan = run.plan->parallel.pipeline;
  PipelineShape const& shape = plan.shape;
  std::size_t const width = numbers_of(shape), row = width * static_cast<std::size_t>(shape.stages);
  std::vector<double> numbers(row * own.size(), 0.0);
  bool const is_shown = run.resolved.mesh.rank_at(Axis::pipeline, run.plan->rank, 0) == 0;
  for (std::size_t step = 0; is_shown && step < own.size(); ++step)
    pack(own[step], &numbers[step * row + width * static_cast<std::size_t>(plan.stage)]);
  control_all_reduce(context.exec, context.communicator, Operation::sum, numbers);

  std::string const& schedule = run.config().parallel.pipeline_schedule;
  PipelineProgram const program = training_pipeline(run.config().parallel, shape.micro_batches);
  std::vector<PipelineBubble> bubbles;
  for (std::size_t step = 0; step < own.size(); ++step) {
    std::vector<StageTimes> stages;
    for (std::size_t stage = 0; stage < static_cast<std::size_t>(shape.stages); ++stage)
      stages.push_back(unpack(&numbers[step * row + width * stage], shape));
    bubbles.push_back(pipeline_bubble(program, schedule, stages, message_seconds(run)));
  }
  return PipelineInfo{schedule, shape, std::ssize(own), median_bubble(std::move(bubbles))};
}

} // namespace trainstone
