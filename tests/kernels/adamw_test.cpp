#include "kernels/adamw.hpp"

#include "core/error.hpp"
#include "kernels/reference.hpp"
#include "support/compare.hpp"
#include "support/views.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;
using namespace trainstone::test;

namespace {

AdamwStep step_number(std::int64_t step) {
  return {.learning_rate = 0.01F,
          .beta1 = 0.9F,
          .beta2 = 0.95F,
          .epsilon = 1e-8F,
          .weight_decay = 0.1F,
          .gradient_scale = 0.5F,
          .step = step};
}

reference::AdamwStep widened(AdamwStep const& step) {
  return {.learning_rate = static_cast<double>(step.learning_rate),
          .beta1 = static_cast<double>(step.beta1),
          .beta2 = static_cast<double>(step.beta2),
          .epsilon = static_cast<double>(step.epsilon),
          .weight_decay = static_cast<double>(step.weight_decay),
          .gradient_scale = static_cast<double>(step.gradient_scale),
          .step = step.step};
}

} // namespace

TEST_CASE("AdamW equals the reference over several steps") {
  ExecutionSpace const exec;
  for (Index const count : {0, 1, 7, 8191, 8193, 20011}) { // around the chunk of one team
    DeviceTensor<float> const parameter(random_values(count, 1)), m(count, 0.0F), v(count, 0.0F);
    std::vector<double> expected = test::widened(random_values(count, 1)), expected_m(expected.size()),
                        expected_v(expected.size());
    for (std::int64_t step = 1; step <= 5; ++step) {
      std::vector<float> const gradient = random_values(count, 10 + static_cast<std::uint64_t>(step));
      DeviceTensor<float> const gradient_d(gradient);
      adamw_update<float>(exec, gradient_d.vector(), parameter.vector(), m.vector(), v.vector(), step_number(step));
      reference::adamw_update(test::widened(gradient), expected, expected_m, expected_v, widened(step_number(step)));
      // |g| <= 1 after scaling: m, v collect 3 roundings of at most 1 per step. The direction m / sqrt(v) is at most
      // about 5 with 3 * step + 6 relative roundings of m's and v's error; the parameter, <= 2, is rounded twice.
      double const steps = static_cast<double>(step);
      CHECK(mismatches<float, double>(m.values(), expected_m, 3 * steps * roundoff) == "");
      CHECK(mismatches<float, double>(v.values(), expected_v, 3 * steps * roundoff) == "");
      double const bound = roundoff * steps * (2 * 2 + 0.01 * 5 * (3 * steps + 6));
      CHECK(mismatches<float, double>(parameter.values(), expected, bound) == "");
    }
  }
}

TEST_CASE("the first step of AdamW moves by the learning rate, whatever the gradient's size") {
  ExecutionSpace const exec;
  for (float const size : {1e-3F, 1.0F, 1e3F}) {
    DeviceTensor<float> const gradient(std::vector<float>{size, -size}), parameter(2, 0.0F), m(2, 0.0F), v(2, 0.0F);
    adamw_update<float>(exec, gradient.vector(), parameter.vector(), m.vector(), v.vector(), step_number(1));
    // epsilon is 2e-5 of the smallest scaled gradient
    CHECK(mismatches<float, double>(parameter.values(), std::vector<double>{-0.01, 0.01}, 0.01 * 2.1e-5) == "");
  }
}

TEST_CASE("padding stays zero under AdamW") {
  ExecutionSpace const exec;
  DeviceTensor<float> const gradient(3, 0.0F), parameter(3, 0.0F), m(3, 0.0F), v(3, 0.0F);
  adamw_update<float>(exec, gradient.vector(), parameter.vector(), m.vector(), v.vector(), step_number(1));
  CHECK(parameter.values() == std::vector<float>(3, 0.0F));
}

TEST_CASE("AdamW refuses other lengths and a step before the first") {
  ExecutionSpace const exec;
  DeviceTensor<float> const three(3, 0.0F), four(4, 0.0F);
  CHECK_THROWS_AS(
      adamw_update<float>(exec, three.vector(), three.vector(), four.vector(), three.vector(), step_number(1)), Error);
  CHECK_THROWS_AS(
      adamw_update<float>(exec, three.vector(), three.vector(), three.vector(), three.vector(), step_number(0)), Error);
}
