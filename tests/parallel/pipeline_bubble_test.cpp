// The idle time of a pipeline from given times of its stages.

#include "parallel/pipeline/pipeline_bubble.hpp"

#include "core/error.hpp"
#include "parallel/pipeline/pipeline_formulas.hpp"
#include "support/pipelines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

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

} // namespace

TEST_CASE("equal stages idle as the closed forms say") {
  struct Worked {
    std::string schedule;
    PipelineShape shape;
    double idle, all;
  };
  // forward and backward of a stage take 1: a stage computes m of the time, and waits the rest
  for (auto const& [schedule, shape, idle, all] :
       {Worked{"1f1b", {4, 8, 1}, 3, 11}, Worked{"gpipe", {4, 8, 1}, 3, 11}, Worked{"naive", {4, 8, 1}, 24, 32},
        Worked{"1f1b", {8, 8, 1}, 7, 15}, Worked{"interleaved", {4, 8, 2}, 1.5, 9.5}}) {
    CAPTURE(schedule, shape.stages, shape.micro_batches, shape.chunks);
    PipelineBubble const bubble = bubble_of(schedule, shape);
    CHECK_THAT(bubble.idle_share, WithinRel(idle / all, 1e-12));
    CHECK_THAT(bubble.idle_ratio, WithinRel(idle / (all - idle), 1e-12));
    CHECK_THAT(bubble.simulated_share, WithinRel(idle / all, 1e-12));
    CHECK_THAT(bubble.formula_share.value(), WithinRel(idle / all, 1e-12));
  }
  for_each_pipeline([](PipelineSchedule const& schedule, PipelineShape const& shape) {
    if (schedule.splits_backward || shape.stages == 1 || shape.micro_batches > 9 || shape.chunks == 3) return;
    INFO(schedule.name << ", " << shape.stages << ", " << shape.micro_batches << ", " << shape.chunks);
    PipelineBubble const bubble = bubble_of(std::string(schedule.name), shape);
    CHECK_THAT(bubble.idle_share, WithinAbs(bubble.formula_share.value(), 1e-12));
    CHECK_THAT(bubble.parts.rest, WithinAbs(0, 1e-12));
  });
}

TEST_CASE("what no term explains is the rest") {
  PipelineBubble const bubble = bubble_of("1f1b", {4, 8, 1}, 0.5);
  CHECK_THAT(bubble.seconds, WithinRel(0.066 + 0.5, 1e-12));
  CHECK_THAT(bubble.parts.rest, WithinRel(4 * 0.5, 1e-9));
  CHECK_THAT(bubble.simulated_share, WithinRel(3.0 / 11, 1e-12));
}

TEST_CASE("the slowest stage ends the step, and its time has the terms worked out by hand") {
  // sums over two micro-batches; in ticks of step_program_timeline_test.cpp forward and backward take 4 and 6, 2 and 3
  PipelineShape const shape{2, 2, 1};
  std::vector<StageTimes> const stages{{30, {8}, {12}}, {24, {4}, {6}}};
  PipelineBubble const bubble = pipeline_bubble(program_of("gpipe", shape), "gpipe", stages, 1);
  CHECK(bubble.seconds == 30);
  CHECK(bubble.busy == std::vector<double>{20, 10});
  CHECK(bubble.idle_share == 0.5);
  CHECK_THAT(bubble.idle_ratio, WithinRel(30.0 / 30, 1e-15));
  // stage 0: F0 [0, 4], F1 [4, 8], B0 [15, 21], B1 [21, 27]; stage 1: F0 [5, 7], F1 [9, 11], B0 [11, 14], B1 [14, 17]
  CHECK_THAT(bubble.simulated_share, WithinRel((2 * 27 - 30) / (2 * 27.0), 1e-12));
  PipelineTimeParts const& parts = bubble.parts;
  CHECK_THAT(parts.time, WithinRel(60, 1e-12));
  CHECK_THAT(parts.busy, WithinRel(30, 1e-12));
  // the bound is 20, that of stages with 3 and 4.5 is 22.5
  CHECK_THAT(parts.unavoidable, WithinRel(2 * 22.5 - 30, 1e-12));
  CHECK_THAT(parts.imbalance, WithinRel(2 * (20 - 22.5), 1e-12));
  // without messages stage 0 has B0 [13, 19], B1 [19, 25]
  CHECK_THAT(parts.order, WithinRel(2 * (25 - 20), 1e-12));
  CHECK_THAT(parts.messages, WithinRel(2 * (27 - 25), 1e-12));
  CHECK_THAT(parts.rest, WithinRel(2 * (30 - 27), 1e-12));
}

TEST_CASE("a stage is busy with all its chunks") {
  // two stages of two chunks, two micro-batches
  PipelineShape const shape{2, 2, 2};
  std::vector<StageTimes> const stages{{9, {1, 0.5}, {2, 1}}, {10, {0.25, 1}, {0.25, 2}}};
  PipelineBubble const bubble = pipeline_bubble(program_of("interleaved", shape), "interleaved", stages, 0);
  CHECK(bubble.busy == std::vector<double>{4.5, 3.5});
  CHECK(bubble.idle_share == 0.6);
  CHECK_THAT(bubble.parts.busy, WithinRel(8, 1e-12));
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
