// Times, slots over time, messages and the sum rule of pipelines whose stages differ.

#include "core/error.hpp"
#include "parallel/pipeline/pipeline_bound.hpp"
#include "parallel/pipeline/pipeline_formulas.hpp"
#include "support/pipelines.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <random>

using namespace trainstone;

namespace {

PipelinePrices random_prices(PipelineShape const& shape, std::mt19937& random) {
  PipelinePrices prices = equal_prices(shape, {});
  std::uniform_int_distribution<Ticks> time(4, 20);
  for (auto& chunks : prices.chunks)
    for (ChunkPrice& chunk : chunks) chunk = {time(random), time(random), time(random)};
  prices.head = time(random);
  prices.message = time(random) / 4;
  return prices;
}

} // namespace

TEST_CASE("two stages and two micro-batches, instruction by instruction") {
  PipelineShape const shape{2, 2, 1};
  PipelinePrices prices = equal_prices(shape, {2, 3}, 1);
  prices.head = 4;
  PipelineTimeline const timeline = play_pipeline(program_of("1f1b", shape), prices);
  // stage 0: F0 [0, 2], F1 [2, 4], B0 [13, 16], B1 [22, 25]; stage 1: F0 [3, 9], B0 [9, 12], F1 [12, 18], B1 [18, 21]
  CHECK(timeline.time == 25);
  CHECK(timeline.stages[0].busy == 10);
  CHECK(timeline.stages[1].busy == 18);
  CHECK(timeline.idle(0) == 15);
  CHECK(timeline.stages[0].slots == std::vector<SlotsInUse>{{0, 1}, {2, 2}, {16, 1}, {25, 0}});
  CHECK(timeline.stages[1].slots == std::vector<SlotsInUse>{{3, 1}, {12, 0}, {12, 1}, {21, 0}});
  CHECK(timeline.messages.size() == 4);
  for (MessageSpan const& message : timeline.messages) CHECK(message.end - message.begin == 1);
}

TEST_CASE("a message begins when its receive has been posted") {
  // stage 1 posts the receive of activation 2 when it has activation 1
  PipelineShape const shape{2, 3, 1};
  PipelinePrices prices = equal_prices(shape, {1, 1}, 1);
  prices.chunks[1][0] = {10, 10};
  PipelineTimeline const timeline = play_pipeline(program_of("gpipe", shape), prices);
  std::vector<std::pair<Ticks, Ticks>> activations;
  for (MessageSpan const& message : timeline.messages)
    if (message.kind == MessageKind::activation) activations.emplace_back(message.begin, message.end);
  CHECK(activations == std::vector<std::pair<Ticks, Ticks>>{{1, 2}, {2, 3}, {12, 13}});
}

TEST_CASE("the terms of the time of two unequal stages are those worked out by hand") {
  PipelineShape const shape{2, 2, 1};
  PipelinePrices prices = equal_prices(shape, {}, 1);
  SECTION("the later stage is slower, and naive keeps to no bound") {
    prices.chunks = {{{2, 3}}, {{4, 6}}};
    PipelineTimeParts const parts = time_parts(program_of("naive", shape), prices);
    // each of two micro-batches takes 2 + 4 + 6 + 3 = 15, and 17 with its two messages
    CHECK(parts.time == 2 * 34);
    CHECK(parts.busy == 2 * (5 + 10));
    // the bound: stage 0 2 x 5 = 10; stage 1 2 + 2 x 10 + 3 = 25. Of stages with 3 and 4.5: 3 + 2 x 7.5 + 4.5 = 22.5
    CHECK(parts.unavoidable == 2 * 22.5 - 30);
    CHECK(parts.imbalance == 2 * (25 - 22.5));
    CHECK(parts.order == 2 * (30 - 25));
    CHECK(parts.messages == 2 * (34 - 30));
    CHECK(parts.rest == 0);
  }
  SECTION("the earlier stage is slower, which 1f1b lets wait for gradients") {
    prices.chunks = {{{4, 6}}, {{2, 3}}};
    PipelineProgram const program = program_of("1f1b", shape);
    PipelineTimeParts const parts = time_parts(program, prices);
    // stage 0: F0 [0, 4], F1 [4, 8], B0 [11, 17], B1 [17, 23]; stage 1: F0 [5, 7], B0 [7, 10], F1 [10, 12], B1 [12, 15]
    CHECK(parts.time == 2 * 23);
    CHECK(parts.busy == 2 * (10 + 5));
    // the bound: stage 0 2 x 10 = 20; stage 1 4 + 2 x 5 + 6 = 20. Of stages with 3 and 4.5: 22.5
    CHECK(parts.unavoidable == 2 * 22.5 - 30);
    CHECK(parts.imbalance == 2 * (20 - 22.5));
    // without messages stage 0 has B0 [9, 15], B1 [15, 21]: it waits from 8 to 9
    CHECK(parts.order == 2 * (21 - 20));
    CHECK(parts.messages == 2 * (23 - 21));
    CHECK(parts.rest == 0);
    PipelineTimeParts const measured = time_parts(program, prices, 30);
    CHECK(measured.time == 2 * 30);
    CHECK(measured.rest == 2 * (30 - 23));
    CHECK(measured.messages == parts.messages);
  }
}

TEST_CASE("the terms of the time of any stages") {
  std::mt19937 random(11);
  for_each_pipeline([&](PipelineSchedule const& schedule, PipelineShape const& shape) {
    if (shape.stages > 4 || shape.micro_batches > 9) return;
    CAPTURE(schedule.name, shape.stages, shape.micro_batches, shape.chunks);
    PipelineProgram const program = program_of(schedule.name, shape);
    PipelinePrices const prices = random_prices(shape, random);
    PipelineTimeParts const parts = time_parts(program, prices);
    // an identity, because each term is the difference of two times that follow one another
    double const sum = parts.busy + parts.unavoidable + parts.imbalance + parts.order + parts.messages + parts.rest;
    CHECK(std::abs(sum - parts.time) < 1e-9 * parts.time);
    CHECK(parts.time == static_cast<double>(shape.stages * play_pipeline(program, prices).time));
    CHECK(parts.unavoidable > -1e-9 * parts.time);
    CHECK(parts.order >= 0);
    CHECK(parts.messages >= 0);
    CHECK(parts.rest == 0);
    PipelineTimeParts const measured = time_parts(program, prices, 2 * parts.time / static_cast<double>(shape.stages));
    CHECK(std::abs(measured.rest - parts.time) < 1e-9 * parts.time);
  });
}

TEST_CASE("stages that become smaller can beat equal ones") {
  PipelineShape const shape{2, 2, 1};
  PipelinePrices falling = equal_prices(shape, {2, 2});
  falling.chunks[1][0] = {1, 1};
  PipelineProgram const program = program_of("1f1b", shape);
  CHECK(play_pipeline(program, falling).time == 8);
  CHECK(play_pipeline(program, equal_prices(shape, {3, 3})).time == 18);
  CHECK(time_parts(program, falling).imbalance == 2 * (8.0 - 9.0));
}

TEST_CASE("closed forms are there for the times that they hold for") {
  PipelineShape const shape{4, 8, 1};
  CHECK_FALSE(pipeline_formulas("zb-h1", shape, {1, 2, 2})); // w > f
  CHECK_FALSE(pipeline_formulas("zb-h1", shape, {2, 1, 2})); // w > b
  CHECK(pipeline_formulas("zb-h1", shape, {2, 2, 2}));
  CHECK_FALSE(pipeline_formulas("other", shape, {1, 2}));
  CHECK_FALSE(pipeline_formulas("zb-h1", shape, {2, 4, 2})->exposed_messages);
  CHECK(pipeline_formulas("gpipe", shape, {1, 2})->bubble_ratio == 3.0 / 8);
  CHECK(pipeline_formulas("naive", shape, {1, 2})->bubble_share() == 0.75);
  CHECK(std::abs(pipeline_formulas("interleaved", {4, 8, 2}, {2, 4})->bubble_share() - 3.0 / 19) < 1e-12);
}

TEST_CASE("times that chunks do not divide are refused") {
  CHECK_THROWS_AS(equal_prices({2, 2, 2}, {1, 2}), Error);
  CHECK_THROWS_AS(play_pipeline(program_of("1f1b", {2, 2, 1}), equal_prices({3, 2, 1}, {1, 2})), Error);
}
