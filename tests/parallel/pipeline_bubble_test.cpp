// The idle time of a pipeline from given times of its stages.

#include "parallel/pipeline/pipeline_bubble.hpp"

#include "core/error.hpp"
#include "parallel/pipeline/pipeline_formulas.hpp"
#include "support/pipelines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <random>
#include <string>

using namespace trainstone;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

/// What the stages would measure if every operation took these prices, in nanoseconds, and the rest `rest` seconds.
std::vector<StageTimes> times_of(PipelineProgram const& program, PipelinePrices const& prices, double rest = 0) {
  auto const micro_batches = static_cast<double>(program.shape.micro_batches);
  double const end = 1e-9 * static_cast<double>(play_pipeline(program, prices).time) + rest;
  std::vector<StageTimes> stages;
  for (auto const& chunks : prices.chunks) {
    StageTimes& stage = stages.emplace_back(StageTimes{.until_end = end});
    for (ChunkPrice const& chunk : chunks) {
      stage.forward.push_back(1e-9 * micro_batches * static_cast<double>(chunk.forward));
      stage.backward.push_back(1e-9 * micro_batches * static_cast<double>(chunk.backward));
    }
  }
  return stages;
}

PipelineBubble bubble_of(std::string const& schedule, PipelineShape const& shape, double rest = 0) {
  PipelineProgram const program = program_of(schedule, shape);
  return pipeline_bubble(program, schedule, times_of(program, equal_prices(shape, {2'000'000, 4'000'000}), rest), 0);
}

double sum_of_terms(PipelineTimeParts const& parts) {
  return parts.busy + parts.unavoidable + parts.imbalance + parts.order + parts.messages + parts.rest;
}

} // namespace

TEST_CASE("equal stages idle as the closed forms say") {
  CHECK_THAT(bubble_of("1f1b", {4, 8, 1}).idle_share, WithinRel(3.0 / 11, 1e-12));
  CHECK_THAT(bubble_of("1f1b", {4, 8, 1}).idle_ratio, WithinRel(3.0 / 8, 1e-12));
  CHECK_THAT(bubble_of("gpipe", {4, 8, 1}).idle_share, WithinRel(3.0 / 11, 1e-12));
  CHECK_THAT(bubble_of("naive", {4, 8, 1}).idle_share, WithinRel(0.75, 1e-12));
  CHECK_THAT(bubble_of("1f1b", {8, 8, 1}).idle_share, WithinRel(7.0 / 15, 1e-12));
  CHECK_THAT(bubble_of("interleaved", {4, 8, 2}).idle_share, WithinRel(3.0 / 19, 1e-12));
  for_each_pipeline([](PipelineSchedule const& schedule, PipelineShape const& shape) {
    if (schedule.splits_backward || shape.stages == 1 || shape.micro_batches > 9 || shape.chunks == 3) return;
    INFO(schedule.name << ", " << shape.stages << ", " << shape.micro_batches << ", " << shape.chunks);
    PipelineBubble const bubble = bubble_of(std::string(schedule.name), shape);
    CHECK_THAT(bubble.idle_share, WithinAbs(bubble.formula_share.value(), 1e-12));
    CHECK_THAT(bubble.idle_share, WithinAbs(bubble.simulated_share, 1e-12));
    CHECK_THAT(bubble.parts.rest, WithinAbs(0, 1e-12));
  });
}

TEST_CASE("what no term explains is the rest") {
  PipelineBubble const bubble = bubble_of("1f1b", {4, 8, 1}, 0.5);
  CHECK_THAT(bubble.seconds, WithinRel(0.066 + 0.5, 1e-12));
  CHECK_THAT(bubble.parts.rest, WithinRel(4 * 0.5, 1e-9));
  CHECK_THAT(bubble.simulated_share, WithinRel(3.0 / 11, 1e-12));
  CHECK_THAT(bubble.parts.time, WithinRel(sum_of_terms(bubble.parts), 1e-12));
}

TEST_CASE("the slowest stage ends the step, and busy times are sums over its chunks") {
  PipelineShape const shape{2, 2, 1};
  std::vector<StageTimes> const stages{{10, {2}, {4}}, {8, {3}, {6}}};
  PipelineBubble const bubble = pipeline_bubble(program_of("gpipe", shape), "gpipe", stages, 0.25);
  CHECK(bubble.seconds == 10);
  CHECK(bubble.busy == std::vector<double>{6, 9});
  CHECK(bubble.idle_share == 0.25);
  CHECK_THAT(bubble.idle_ratio, WithinRel(5.0 / 15, 1e-15));
  CHECK(bubble.parts.messages > 0);
  CHECK_THAT(bubble.parts.time, WithinRel(sum_of_terms(bubble.parts), 1e-12));
}

TEST_CASE("the terms of a measured step add up to the time of all stages") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> seconds(0.1, 1);
  for_each_pipeline([&](PipelineSchedule const& schedule, PipelineShape const& shape) {
    if (schedule.splits_backward || shape.stages == 1 || shape.stages > 4 || shape.micro_batches > 8) return;
    std::vector<StageTimes> stages;
    for (Index stage = 0; stage < shape.stages; ++stage) {
      StageTimes& times = stages.emplace_back(StageTimes{.until_end = 50 * seconds(random)});
      for (Index chunk = 0; chunk < shape.chunks; ++chunk) {
        times.forward.push_back(seconds(random));
        times.backward.push_back(seconds(random));
      }
    }
    PipelineBubble const bubble =
        pipeline_bubble(program_of(schedule.name, shape), schedule.name, stages, 0.01 * seconds(random));
    CHECK_THAT(bubble.parts.time, WithinRel(static_cast<double>(shape.stages) * bubble.seconds, 1e-12));
    CHECK_THAT(bubble.parts.time, WithinRel(sum_of_terms(bubble.parts), 1e-12));
    double busy = 0;
    for (double const one : bubble.busy) busy += one;
    CHECK_THAT(bubble.parts.busy, WithinRel(busy, 1e-6)); // means are whole nanoseconds
  });
}

TEST_CASE("the median of steps is one of the steps, the lower one of two") {
  auto const of_share = [](double share) { return PipelineBubble{.seconds = 10 * share, .idle_share = share}; };
  CHECK(median_bubble({of_share(0.5), of_share(0.1), of_share(0.3)}).seconds == 3);
  CHECK(median_bubble({of_share(0.5), of_share(0.1)}).idle_share == 0.1);
  CHECK(median_bubble({of_share(0.2)}).idle_share == 0.2);
  CHECK_THROWS_AS(median_bubble({}), Error);
}

TEST_CASE("times of another number of stages are refused") {
  CHECK_THROWS_AS(pipeline_bubble(program_of("1f1b", {2, 2, 1}), "1f1b", {{1, {1}, {1}}}, 0), Error);
}
