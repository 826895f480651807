#include "parallel/pipeline/pipeline_bubble.hpp"

#include "core/error.hpp"
#include "parallel/pipeline/pipeline_formulas.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trainstone {

namespace {

constexpr double ticks_per_second = 1e9;

Ticks ticks(double seconds) { return static_cast<Ticks>(std::llround(ticks_per_second * seconds)); }

double sum(std::vector<double> const& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

/// Means over micro-batches.
PipelinePrices mean_prices(PipelineShape const& shape, std::vector<StageTimes> const& stages, double message_seconds) {
  auto const micro_batches = static_cast<double>(shape.micro_batches);
  PipelinePrices prices{.chunks = {}, .message = ticks(message_seconds)};
  for (StageTimes const& stage : stages) {
    std::vector<ChunkPrice>& chunks = prices.chunks.emplace_back();
    for (std::size_t chunk = 0; chunk < stage.forward.size(); ++chunk)
      chunks.push_back({ticks(stage.forward[chunk] / micro_batches), ticks(stage.backward[chunk] / micro_batches)});
  }
  return prices;
}

/// Of stages that all have the mean times.
std::optional<double> formula_share(std::string_view schedule, PipelineShape const& shape,
                                    std::vector<StageTimes> const& stages) {
  double forward = 0, backward = 0;
  for (StageTimes const& stage : stages) {
    forward += sum(stage.forward);
    backward += sum(stage.backward);
  }
  auto const chunks = static_cast<double>(shape.micro_batches * shape.virtual_stages());
  ChunkPrice const stage{shape.chunks * ticks(forward / chunks), shape.chunks * ticks(backward / chunks)};
  auto const formulas = pipeline_formulas(schedule, shape, stage);
  return formulas ? std::optional(formulas->bubble_share()) : std::nullopt;
}

PipelineTimeParts in_seconds(PipelineTimeParts parts) {
  for (double* const part :
       {&parts.time, &parts.busy, &parts.unavoidable, &parts.imbalance, &parts.order, &parts.messages, &parts.rest})
    *part /= ticks_per_second;
  return parts;
}

} // namespace

double StageTimes::busy() const { return sum(forward) + sum(backward); }

PipelineBubble pipeline_bubble(PipelineProgram const& program, std::string_view schedule,
                               std::vector<StageTimes> const& stages, double message_seconds) {
  TRAINSTONE_REQUIRE(!program.splits_backward && !program.forward_only && std::ssize(stages) == program.shape.stages,
                     "times of {} stages for {}, of a training that does not split backward", stages.size(),
                     program.shape.stages);
  PipelineBubble bubble{.message_seconds = message_seconds};
  for (StageTimes const& stage : stages) {
    bubble.seconds = std::max(bubble.seconds, stage.until_end);
    bubble.busy.push_back(stage.busy());
  }
  double const all = static_cast<double>(program.shape.stages) * bubble.seconds, busy = sum(bubble.busy);
  bubble.idle_share = all > 0 ? (all - busy) / all : 0;
  bubble.idle_ratio = busy > 0 ? (all - busy) / busy : 0;
  bubble.formula_share = formula_share(schedule, program.shape, stages);
  PipelinePrices const prices = mean_prices(program.shape, stages, message_seconds);
  bubble.simulated_share = play_pipeline(program, prices).idle_share();
  bubble.parts = in_seconds(time_parts(program, prices, ticks_per_second * bubble.seconds));
  return bubble;
}

PipelineBubble median_bubble(std::vector<PipelineBubble> steps) {
  TRAINSTONE_REQUIRE(!steps.empty(), "a median of {} steps", steps.size());
  auto const middle = steps.begin() + (std::ssize(steps) - 1) / 2;
  std::ranges::nth_element(steps, middle, {}, &PipelineBubble::idle_share);
  return std::move(*middle);
}

} // namespace trainstone
