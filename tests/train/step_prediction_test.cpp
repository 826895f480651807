// What a step takes at least, and with every message on top.

#include "train/step_prediction.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

using namespace trainstone;
using Catch::Approx;

namespace {

RunConfig small_config(Rank ranks) {
  RunConfig config;
  config.model = {2, 1, 8, 5, 29};
  config.data.sequence = 5;
  config.batch = {1, 1, ranks};
  config.kernels.gemm = "kokkos";
  return config;
}

} // namespace

TEST_CASE("a step's floor is its products at the GEMM rate and 28 bytes per parameter at the bandwidth",
          "[train][prediction]") {
  for (Rank const ranks : {1, 3}) {
    RunConfig const config = small_config(ranks);
    RunPlan const plan = plan_run(config, 0, ranks);
    auto const flops = static_cast<double>(plan.step_flops.gemm);
    auto const parameters = static_cast<double>(plan.table.model_parameters());
    double const expected = ranks * flops / 7e9 + 28 * parameters / 3e9;
    CHECK(floor_seconds(plan, config.optimizer, {7e9, 3e9}) == Approx(expected));
  }
}

TEST_CASE("on an alpha-beta-gamma machine messages of a step cost alpha each, beta per byte and gamma per byte added",
          "[train][prediction]") {
  constexpr Rank ranks = 3;
  RunConfig const config = small_config(ranks);
  RunPlan const plan = plan_run(config, 1, ranks);
  Traffic const sent = plan.step_sent() + plan.step_control();
  AlphaBetaGamma const machine{.alpha = 2e-6, .beta = 3e-9, .gamma = 5e-10};
  StepPrediction const step = predict_step(plan, config.optimizer, {7e9, 3e9}, uniform_machine(machine));
  double const expected = machine.alpha * static_cast<double>(sent.messages) +
                          machine.beta * static_cast<double>(sent.bytes) +
                          machine.gamma * static_cast<double>(sizeof(float) * sent.reduced);
  CHECK(step.communication_seconds == Approx(expected));
  CHECK(step.compute_seconds == Approx(floor_seconds(plan, config.optimizer, {ranks * 7e9, ranks * 3e9})));
}

TEST_CASE("one rank alone spends no time on messages, and behind a slow network no message is faster than there",
          "[train][prediction]") {
  MachineModel const machine = uniform_machine({.alpha = 1e-6, .beta = 1e-9, .gamma = 0});
  EmulatedNetwork const slow{.latency = 1e-3, .seconds_per_byte = 1e-6};
  RunConfig const alone = small_config(1), two = small_config(2);
  CHECK(predict_step(plan_run(alone, 0, 1), alone.optimizer, {1e9, 1e9}, machine, slow).communication_seconds == 0);
  RunPlan const plan = plan_run(two, 0, 2);
  Traffic const sent = plan.step_sent() + plan.step_control();
  double const expected = 1e-3 * static_cast<double>(sent.messages) + 1e-6 * static_cast<double>(sent.bytes);
  CHECK(predict_step(plan, two.optimizer, {1e9, 1e9}, machine, slow).communication_seconds == Approx(expected));
}
