// The lectures on optimizers and on frameworks: figures and closed forms are written down here once more.

#include "lectures/lecture_networks.hpp"
#include "lectures/lecture_optimizer.hpp"
#include "support/lines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

TEST_CASE("a constant gradient moves a parameter as the closed forms of both Adams say", "[figures]") {
  TaughtOptimizer const lecture = compare_taught_optimizer();
  REQUIRE(lecture.steps.size() == 9);
  for (AdamRow const& row : lecture.steps) {
    INFO("gradient " << row.gradient << ", step " << row.step);
    // m = (1 - b1^t) g and v = (1 - b2^t) g^2: corrected they are g and g^2
    double const ratio = (1 - std::pow(0.9, row.step)) / std::sqrt(1 - std::pow(0.999, row.step));
    double const size = std::abs(row.gradient);
    CHECK_THAT(row.taught, WithinRel(-ratio * size, 1e-12)); // -m / sqrt(v) g = -ratio |g|: always down
    CHECK_THAT(row.published, WithinRel(-row.gradient / (size + 1e-8), 1e-10));
  }
}

TEST_CASE("a parameter with a constant gradient goes where the closed forms of the optimizers say", "[figures]") {
  double const g = 0.5, rate = 0.1, decay = 0.1;
  double const corrected = g / (g + 1e-8); // m' / (sqrt(v') + eps) of a constant gradient
  auto const taught = [&](int step) { return (1 - std::pow(0.9, step)) / std::sqrt(1 - std::pow(0.999, step)) * g; };
  // adam, decay: the gradient of step 2 is less, as the parameter is
  double const first = g + decay, second = g + decay * (1 - rate);
  double const mean = (0.9 * 0.1 * first + 0.1 * second) / (1 - 0.81);
  double const square = (0.999 * 0.001 * first * first + 0.001 * second * second) / (1 - 0.998001);
  std::vector<std::array<double, 2>> const expected{
      {1 - rate * g, 1 - 2 * rate * g},
      {1 - rate * g, 1 - rate * (2 + 0.9) * g},
      {1 - rate * first, (1 - rate * decay) * (1 - rate * first) - rate * g},
      {1 - rate * taught(1), 1 - rate * (taught(1) + taught(2))},
      {1 - rate * corrected, 1 - 2 * rate * corrected},
      {1 - rate, 1 - rate - rate * mean / std::sqrt(square)},
      {1 - rate * (1 + decay), (1 - rate * decay) * (1 - rate * (1 + decay)) - rate},
  };
  std::vector<WorkedRow> const worked = compare_taught_optimizer().worked;
  REQUIRE(worked.size() == expected.size());
  for (std::size_t i = 0; i < worked.size(); ++i) {
    INFO(worked[i].optimizer << ": " << worked[i].rule);
    for (std::size_t step : {0, 1}) CHECK_THAT(worked[i].after[step], WithinRel(expected[i][step], 1e-7));
  }
}

TEST_CASE("the lecture on optimizers shows both Adams and the bytes of state", "[figures]") {
  std::string const text = lecture_optimizer_text(compare_taught_optimizer());
  std::string const words = test::without_widths(text);
  // 0.1 / sqrt(0.001) = 3.1623 at first, 1 / sqrt(1 - 0.999^1000) = 1.2576 at step 1000
  for (char const* const line : {"\n1 1 -3.1623 -1.0000\n", "\n-1 1 -3.1623 1.0000\n", "\n0.01 1 -0.0316 -1.0000\n",
                                 "\n1 1000 -1.2576 -1.0000\n"})
    CHECK_THAT(words, ContainsSubstring(line));
  // fp32 4 + 4 + moments; mixed16 2 + 2 + 4 + moments; mixed20 4 more
  for (char const* const line : {"\nsgd nothing 0 - 8 8 12\n", "\nsgd, momentum velocity 4 - 12 12 16\n",
                                 "\nadam, adamw two moments 8 16, 20 16 16 20\n"})
    CHECK_THAT(words, ContainsSubstring(line));
  // 1 - 0.1 x 3.1623 x 0.5; 1 - 0.1 (1 + 0.1)
  CHECK_THAT(words, ContainsSubstring("\nadam lr m / sqrt(v) x g as taught 0.841886 "));
  CHECK_THAT(words, ContainsSubstring("+ decay w) published, this program 0.890000 "));
  CHECK_THAT(text, ContainsSubstring("multiplies the step with an extra g_t and corrects no bias"));
  CHECK_THAT(text, ContainsSubstring("2 lambda w"));
  CHECK(test::longest_line(text) <= 132);
}

TEST_CASE("ten frameworks have the taught figures, and the least memory of their kind", "[figures]") {
  std::string const text = lecture_networks_text(compare_taught_networks());
  std::string const words = test::without_widths(text);
  // GB: 16 bytes x parameters, and that over 1 or over all devices
  for (char const* const line : {
           "\nFlexFlow Hybrid 64 GPUs 24M* 0.38 - -\n",
           "\nPipeDream Inter-Layer 16 GPUs 138M 2.21 0.14 16 32 40 80\n",
           "\nDDP Data 256 GPUs 345M 5.52 5.52 16 32 40 80\n",
           "\nGPipe Inter-Layer 8 GPUs 557M 8.91 1.11 16 32 40 80\n",
           "\nMeshTensorFlow Intra-Layer 512-core TPUv2 4.9B 78.40 0.15 16 32 40 80\n",
           "\nMegatron Intra-Layer 512 GPUs 8.3B 132.80 0.26 16 32 40 80\n",
           "\nTorchGPipe Inter-Layer 8 GPUs 15.8B 252.80 31.60 32 40 80\n",
           "\nKARMA Data 2048 GPUs 17B 272.00 272.00 none\n",
           "\nLBANN Data 3072 CPUs 78.6B 1257.60 1257.60 none\n",
           "\nZeRO Data 400 GPUs 100B 1600.00 4.00 16 32 40 80\n",
       })
    CHECK_THAT(words, ContainsSubstring(line));
  CHECK(compare_taught_networks().size() == 10);
  CHECK(test::longest_line(text) <= 132);
}
