#include "train/learning_rate.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <cmath>

using namespace trainstone;
using Catch::Matchers::WithinRel;

// The formulas take fewer than ten roundings of relative size 1.1e-16.
constexpr double tolerance = 1e-15;

TEST_CASE("warm-up is linear, starts above zero and reaches the peak with its last step") {
  for (ScheduleType const schedule : {ScheduleType::constant, ScheduleType::cosine}) {
    LearningRate const rate{.schedule = schedule, .peak = 3e-4, .warmup = 7, .steps = 100, .final_fraction = 0.1};
    for (std::int64_t step = 0; step < 7; ++step) {
      CHECK_THAT(rate.at(step), WithinRel(3e-4 * static_cast<double>(step + 1) / 7, tolerance));
    }
    CHECK(rate.at(0) > 0);
    CHECK_THAT(rate.at(7), WithinRel(3e-4, tolerance));
  }
}

TEST_CASE("the constant schedule stays at the peak") {
  LearningRate const rate{.schedule = ScheduleType::constant, .peak = 1e-3, .warmup = 0, .steps = 10};
  for (std::int64_t const step : {0, 1, 9, 10, 1000}) CHECK(rate.at(step) == 1e-3);
}

TEST_CASE("the cosine goes from the peak through the middle to the final fraction and stays there") {
  LearningRate const rate{
      .schedule = ScheduleType::cosine, .peak = 2.0, .warmup = 10, .steps = 110, .final_fraction = 0.25};
  CHECK_THAT(rate.at(10), WithinRel(2.0, tolerance));
  CHECK_THAT(rate.at(35), WithinRel(0.5 + 1.5 * (1 + std::sqrt(0.5)) / 2, tolerance));
  CHECK_THAT(rate.at(60), WithinRel(0.5 + 1.5 / 2, tolerance));
  CHECK_THAT(rate.at(110), WithinRel(0.5, tolerance));
  CHECK_THAT(rate.at(100000), WithinRel(0.5, tolerance));
  for (std::int64_t step = 10; step < 110; ++step) CHECK(rate.at(step + 1) < rate.at(step));
}

TEST_CASE("no step of a training has a learning rate of zero, even if the cosine ends there") {
  for (std::int64_t const steps : {1, 2, 3, 100}) {
    for (std::int64_t const warmup : {0, 1, 3}) {
      LearningRate const rate{.schedule = ScheduleType::cosine, .peak = 1.0, .warmup = warmup, .steps = steps};
      for (std::int64_t step = 0; step < steps; ++step) {
        CAPTURE(steps, warmup, step);
        CHECK(rate.at(step) > 0);
      }
    }
  }
}

TEST_CASE("a warm-up as long as the training or longer is only the warm-up") {
  LearningRate const equal{
      .schedule = ScheduleType::cosine, .peak = 1.0, .warmup = 4, .steps = 4, .final_fraction = 0.1};
  CHECK(equal.at(3) == 1.0);
  LearningRate const longer{
      .schedule = ScheduleType::cosine, .peak = 1.0, .warmup = 8, .steps = 4, .final_fraction = 0.1};
  CHECK(longer.at(3) == 0.5);
}
