#include "kernels/optimizer.hpp"

#include "core/counters.hpp"
#include "core/error.hpp"
#include "kernels/reference/reference.hpp"
#include "support/compare.hpp"
#include "support/optimizer_state.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <type_traits>

using namespace trainstone;
using namespace trainstone::test;

namespace {

reference::AdamStep widened(AdamStep const& step) {
  return {.learning_rate = static_cast<double>(step.learning_rate),
          .beta1 = static_cast<double>(step.beta1),
          .beta2 = static_cast<double>(step.beta2),
          .epsilon = static_cast<double>(step.epsilon),
          .weight_decay = static_cast<double>(step.weight_decay),
          .gradient_scale = static_cast<double>(step.gradient_scale),
          .step = step.step};
}

reference::SgdStep widened(SgdStep const& step) {
  return {.learning_rate = static_cast<double>(step.learning_rate),
          .momentum = static_cast<double>(step.momentum),
          .weight_decay = static_cast<double>(step.weight_decay),
          .gradient_scale = static_cast<double>(step.gradient_scale)};
}

constexpr Index counts[] = {0, 1, 7, 8191, 8193, 20011}; // around the chunk of one team

/// Bounds of the errors of m, v and parameters after `steps` steps from |parameter| <= 2. Scaled gradients are 0.25 to
/// 1 and, with Adam's decay of 0.1 * 2 added in up to 3 roundings, 0.05 to 1.2; so m and v, below 1.5, are rounded at
/// most 4 times per step on top of what their gradient is off: `gradient_roundings` * 1.2 and 0.1 * the parameter's
/// error. By Cauchy's inequality the direction is at most sqrt(sum a_i^2 / b_i) < 1.1 with the weights a_i, b_i that
/// the moments give to step i of 5; it changes by at most twice that times the gradients' relative error, and is itself
/// rounded 8 times, as the corrections are, for which 3 per step more is room. The parameter is rounded twice per step.
struct AdamBounds {
  AdamBounds(std::int64_t steps, double gradient_roundings, double smallest) {
    auto const n = static_cast<double>(steps);
    double const gradient = gradient_roundings * 1.2 * roundoff + 0.1 * 40 * roundoff; // < 40: the tests check it
    moment = n * (4 * 1.5 * roundoff + 3 * gradient);
    parameter = n * (2 * 2 * roundoff + 0.01 * 1.1 * (2 * gradient / smallest + (8 + 3 * n) * roundoff));
  }
  double moment, parameter;
};

} // namespace

TEMPLATE_LIST_TEST_CASE("AdamW and Adam equal their references over several steps", "[optimizer]", Storages) {
  using Gradient = typename TestType::Gradient;
  using Parameter = typename TestType::Parameter;
  ExecutionSpace const exec;
  for (bool const decoupled : {true, false}) {
    auto const update = decoupled ? adamw_update<Gradient, Parameter> : adam_update<Gradient, Parameter>;
    auto const reference_update = decoupled ? reference::adamw_update : reference::adam_update;
    for (Index const count : counts) {
      State<Parameter> state(count);
      for (std::int64_t step = 1; step <= 5; ++step) {
        Gradients<Gradient> const gradients(count, step);
        update(exec, gradients.stored.vector(), state.master.vector(), state.first.vector(), state.second.vector(),
               state.parameter(), adam_step(step));
        reference_update(gradients.widened(), state.expected, state.expected_first, state.expected_second,
                         widened(adam_step(step)));
        AdamBounds const bounds = decoupled ? AdamBounds(step, 1, 0.25) : AdamBounds(step, 3, 0.05);
        INFO((decoupled ? "AdamW, " : "Adam, ") << count << " elements, step " << step);
        CHECK(bounds.parameter < 40 * roundoff);
        CHECK(mismatches<float, double>(state.first.values(), state.expected_first, bounds.moment) == "");
        CHECK(mismatches<float, double>(state.second.values(), state.expected_second, bounds.moment) == "");
        CHECK(mismatches<float, double>(state.master.values(), state.expected, bounds.parameter) == "");
        CHECK(state.is_rounded_master());
      }
    }
  }
}

TEMPLATE_LIST_TEST_CASE("gradient descent equals its reference with momentum and without", "[optimizer]", Storages) {
  using Gradient = typename TestType::Gradient;
  using Parameter = typename TestType::Parameter;
  ExecutionSpace const exec;
  for (float const momentum : {0.0F, 0.9F}) {
    SgdStep const step{.learning_rate = 0.01F, .momentum = momentum, .weight_decay = 0.1F, .gradient_scale = 0.5F};
    for (Index const count : counts) {
      State<Parameter> state(count);
      Vector<float> const velocity = momentum > 0 ? state.first.vector() : Vector<float>();
      for (int steps = 1; steps <= 5; ++steps) {
        Gradients<Gradient> const gradients(count, steps);
        sgd_update<Gradient, Parameter>(exec, gradients.stored.vector(), state.master.vector(), velocity,
                                        state.parameter(), step);
        reference::sgd_update(gradients.widened(), state.expected, state.expected_first, widened(step));
        // |g| <= 1.2 in 3 roundings, |velocity| <= 1.2 (1 + 0.9 + ... + 0.9^4) < 5 in 2 more per step, the parameter's
        // 2 in one, its change in one
        double const velocity_bound = steps * (3 * 1.2 + 2 * 5) * roundoff;
        double const bound = steps * (2 * roundoff + 0.01 * (velocity_bound + 5 * roundoff));
        INFO("momentum " << momentum << ", " << count << " elements, step " << steps);
        if (momentum > 0)
          CHECK(mismatches<float, double>(state.first.values(), state.expected_first, velocity_bound) == "");
        CHECK(mismatches<float, double>(state.master.values(), state.expected, bound) == "");
        CHECK(state.is_rounded_master());
      }
    }
  }
}

TEST_CASE("changes that 16 bits cannot hold add up in the master copy", "[optimizer]") {
  ExecutionSpace const exec;
  DeviceTensor<bf16> const gradient(3, from_float<bf16>(1.0F)), parameter(3, from_float<bf16>(1.0F));
  DeviceTensor<float> const master(3, 1.0F);
  SgdStep const step{.learning_rate = 0x1p-12F, .momentum = 0, .weight_decay = 0, .gradient_scale = 1};
  for (int i = 0; i < 64; ++i) // of bf16, 1 - 2^-8 is the next number below 1
    sgd_update<bf16, bf16>(exec, gradient.vector(), master.vector(), Vector<float>(), parameter.vector(), step);
  CHECK(master.values() == std::vector<float>(3, 1 - 0x1p-6F));
  CHECK(to_float(parameter.values()[2]) == 1 - 0x1p-6F);
}

TEST_CASE("the first step of AdamW and of Adam moves by the learning rate, whatever the gradient's size",
          "[optimizer]") {
  ExecutionSpace const exec;
  for (auto const update : {adamw_update<float, float>, adam_update<float, float>}) {
    for (float const size : {1e-3F, 1.0F, 1e3F}) {
      DeviceTensor<float> const gradient(std::vector<float>{size, -size}), parameter(2, 0.0F), m(2, 0.0F), v(2, 0.0F);
      update(exec, gradient.vector(), parameter.vector(), m.vector(), v.vector(), parameter.vector(), adam_step(1));
      // epsilon is 2e-5 of the smallest scaled gradient
      CHECK(mismatches<float, double>(parameter.values(), std::vector<double>{-0.01, 0.01}, 0.01 * 2.1e-5) == "");
    }
  }
}

TEST_CASE("AdamW decays by lr times the decay, Adam's decay is a gradient like any other", "[optimizer]") {
  ExecutionSpace const exec;
  DeviceTensor<float> const gradient(1, 0.0F), decoupled(1, 2.0F), regularised(1, 2.0F), m(1, 0.0F), v(1, 0.0F);
  adamw_update<float, float>(exec, gradient.vector(), decoupled.vector(), m.vector(), v.vector(), decoupled.vector(),
                             adam_step(1));
  CHECK(m.values() == std::vector<float>{0.0F});
  // two roundings of the parameter, and those of its change
  CHECK(mismatches<float, double>(decoupled.values(), std::vector<double>{2 - 0.01 * 0.1 * 2}, 4 * roundoff) == "");
  adam_update<float, float>(exec, gradient.vector(), regularised.vector(), m.vector(), v.vector(), regularised.vector(),
                            adam_step(1));
  CHECK(mismatches<float, double>(regularised.values(), std::vector<double>{2 - 0.01}, 4 * roundoff) == "");
}

TEST_CASE("padding stays zero under every optimizer", "[optimizer]") {
  ExecutionSpace const exec;
  std::vector<float> const zeros(3, 0.0F);
  DeviceTensor<float> const gradient(zeros), parameter(zeros), m(zeros), v(zeros);
  Vector<float> const p = parameter.vector();
  adamw_update<float, float>(exec, gradient.vector(), p, m.vector(), v.vector(), p, adam_step(1));
  adam_update<float, float>(exec, gradient.vector(), p, m.vector(), v.vector(), p, adam_step(1));
  sgd_update<float, float>(exec, gradient.vector(), p, m.vector(), p, {0.01F, 0.9F, 0.1F, 1.0F});
  sgd_update<float, float>(exec, gradient.vector(), p, Vector<float>(), p, {0.01F, 0.0F, 0.1F, 1.0F});
  CHECK(parameter.values() == zeros);
}

TEST_CASE("optimizers declare one pass over gradient, master copy, state and 16-bit parameter", "[optimizer]") {
  ExecutionSpace const exec;
  constexpr Index count = 5;
  auto const bytes = [](auto const& work) {
    std::uint64_t const before = counters().bytes[Phase::optimizer];
    work();
    return (counters().bytes[Phase::optimizer] - before) / count;
  };
  State<float> single(count);
  State<bf16> mixed(count);
  Gradients<float> const wide(count, 1);
  Gradients<bf16> const narrow(count, 1);
  Vector<float> const none;
  auto const m = single.first.vector(), v = single.second.vector();
  CHECK(bytes([&] {
          adamw_update<float, float>(exec, wide.stored.vector(), single.parameter(), m, v, single.parameter(),
                                     adam_step(1));
        }) == 28);
  CHECK(bytes([&] {
          adam_update<bf16, bf16>(exec, narrow.stored.vector(), mixed.master.vector(), m, v, mixed.parameter(),
                                  adam_step(1));
        }) == 28);
  CHECK(bytes([&] {
          sgd_update<float, bf16>(exec, wide.stored.vector(), mixed.master.vector(), m, mixed.parameter(),
                                  {0.01F, 0.9F, 0.1F, 1.0F});
        }) == 22);
  CHECK(bytes([&] {
          sgd_update<float, float>(exec, wide.stored.vector(), single.parameter(), none, single.parameter(),
                                   {0.01F, 0.0F, 0.1F, 1.0F});
        }) == 12);
}

TEST_CASE("optimizers refuse other lengths, a step before the first and fp32 parameters beside a master copy",
          "[optimizer]") {
  ExecutionSpace const exec;
  DeviceTensor<float> const threes(3, 0.0F), others(3, 0.0F), fours(4, 0.0F);
  auto const three = threes.vector(), other = others.vector(), four = fours.vector();
  CHECK_THROWS_AS((adamw_update<float, float>(exec, three, three, four, three, three, adam_step(1))), Error);
  CHECK_THROWS_AS((adamw_update<float, float>(exec, three, three, three, three, three, adam_step(0))), Error);
  CHECK_THROWS_AS((adam_update<float, float>(exec, three, three, three, four, three, adam_step(1))), Error);
  CHECK_THROWS_AS((adam_update<float, float>(exec, three, three, three, three, other, adam_step(1))), Error);
  CHECK_THROWS_AS((sgd_update<float, float>(exec, three, four, three, four, {0.1F, 0.9F, 0, 1})), Error);
  CHECK_THROWS_AS((sgd_update<float, float>(exec, three, three, Vector<float>(), three, {0.1F, 0.9F, 0, 1})), Error);
  CHECK_THROWS_AS((sgd_update<float, float>(exec, three, three, three, three, {0.1F, 0, 0, 1})), Error);
}
