#include "kernels/bias_gelu.hpp"

#include "core/error.hpp"
#include "kernels/common/math.hpp"
#include "kernels/reference/reference.hpp"
#include "support/compare.hpp"
#include "support/instances.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

using namespace trainstone;
using namespace trainstone::test;

namespace {

struct Sizes {
  Index rows, columns;
  Index elements() const { return rows * columns; }
};

Sizes const all_sizes[] = {{1, 1}, {0, 5}, {3, 0}, {7, 13}, {257, 31}, {2, 1031}};

} // namespace

TEST_CASE("the exponential stays within 1.5 ulp from -87 to 87") {
  double worst = 0;
  float worst_at = 0;
  for (std::uint32_t bits = 0; bits < std::bit_cast<std::uint32_t>(87.0F); bits += 997) {
    for (float const x : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)}) {
      double const exact = std::exp(static_cast<double>(x));
      double const ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
      double const error = std::abs(static_cast<double>(Impl::exponential(x)) - exact) / ulp;
      if (error > worst) {
        worst = error;
        worst_at = x;
      }
    }
  }
  INFO("worst error " << worst << " ulp at " << worst_at);
  CHECK(worst < 1.5);
}

TEST_CASE("the exponential saturates, flushes and keeps NaN") {
  float const infinity = std::numeric_limits<float>::infinity();
  CHECK(Impl::exponential(0.0F) == 1.0F);
  CHECK(Impl::exponential(-87.5F) == 0.0F);
  CHECK(Impl::exponential(-infinity) == 0.0F);
  // within 1.5 ulp as at 87; the compiler may evaluate one of two calls itself, without fused multiply-adds
  double const largest = std::exp(87.0), ulp = std::ldexp(1.0, std::ilogb(largest) - 23);
  CHECK(std::abs(static_cast<double>(Impl::exponential(infinity)) - largest) < 1.5 * ulp);
  CHECK(std::isnormal(1.0F / (1.0F + Impl::exponential(infinity))));
  CHECK(std::isnan(Impl::exponential(std::numeric_limits<float>::quiet_NaN())));
}

TEMPLATE_LIST_TEST_CASE("bias and GELU forward equal the reference", "", StorageTypes) {
  using T = TestType;
  ExecutionSpace const exec;
  for (Sizes const& s : all_sizes) {
    std::vector<T> const x = stored<T>(random_values(s.elements(), 1, -8.0, 8.0));
    std::vector<T> const bias = stored<T>(random_values(s.columns, 2));
    DeviceTensor<T> const x_d(x), only_biased(x), bias_d(bias), y(s.elements(), T{});
    bias_gelu_forward<T>(exec, bias_d.vector(), x_d.matrix(s.rows, s.columns), y.matrix(s.rows, s.columns));
    add_bias<T>(exec, bias_d.vector(), only_biased.matrix(s.rows, s.columns));

    std::vector<double> expected_x = widened(x), expected_y(x.size());
    reference::bias_gelu_forward(widened(bias), expected_x, expected_y);
    // one rounding in fp32, |x| <= 10
    CHECK(mismatches<double, double>(widened(x_d.values()), expected_x, stored_within<T>(roundoff * 10)) == "");
    CHECK(widened(only_biased.values()) == widened(x_d.values()));

    // gelu of x as it is stored: relative error of e^(-2u) is its own (1.5 ulp = 3 u) plus that of the argument, |2u|
    // <= 88 with four roundings; it matters only where e^(-2u) does, and |x| e^(-2u) |2u| stays below 2 there
    std::vector<double> const biased = widened(x_d.values());
    for (std::size_t i = 0; i < biased.size(); ++i) expected_y[i] = reference::gelu(biased[i]);
    CHECK(mismatches<double, double>(widened(y.values()), expected_y, [](double value) {
            return stored_within<T>(roundoff * (6 * std::abs(value) + 8))(value);
          }) == "");
  }
}

TEST_CASE("GELU keeps its relative accuracy for small and for negative arguments") {
  ExecutionSpace const exec;
  std::vector<float> const x{1e-30F, -1e-30F, 1e-5F, -1e-5F, 0.0F, -3.0F, -4.5F, -6.0F, 40.0F, -40.0F};
  Index const count = static_cast<Index>(x.size());
  DeviceTensor<float> const x_d(x), zero(count, 0.0F), y(count, 9.0F);
  bias_gelu_forward<float>(exec, zero.vector(), x_d.matrix(1, count), y.matrix(1, count));
  // The derivative of log(gelu) reaches 2 |u'| |x| < 60 at x = -6: so often is a rounding of the argument amplified.
  std::vector<double> expected;
  for (float const value : x) expected.push_back(reference::gelu(static_cast<double>(value)));
  CHECK(mismatches<float, double>(y.values(), expected,
                                  [](double value) { return 4 * 60 * roundoff * std::abs(value) + 1e-36; }) == "");
}

TEMPLATE_LIST_TEST_CASE("GELU backward equals the reference", "", StorageTypes) {
  using T = TestType;
  ExecutionSpace const exec;
  for (Sizes const& s : all_sizes) {
    std::vector<T> const x = stored<T>(random_values(s.elements(), 1, -10.0, 10.0));
    std::vector<T> const d_y = stored<T>(random_values(s.elements(), 3));
    DeviceTensor<T> const x_d(x), d(d_y);
    gelu_backward<T>(exec, x_d.matrix(s.rows, s.columns), d.matrix(s.rows, s.columns));
    std::vector<double> expected = widened(d_y);
    reference::gelu_backward(widened(x), expected);
    // |d_y| <= 2; s and x s (1 - s) 2u' are at most 1.2 and 0.5, each after about ten roundings as above
    CHECK(mismatches<double, double>(widened(d.values()), expected, stored_within<T>(2 * roundoff * 16)) == "");
  }
}

TEMPLATE_LIST_TEST_CASE("bias backward sums columns as the reference does, in both modes, with repeatable bits", "",
                        StorageAndGradientTypes) {
  using T = typename TestType::Storage;
  using Gradient = typename TestType::Gradient;
  for (Sizes const& s : all_sizes) {
    std::vector<T> const d_y = stored<T>(random_values(s.elements(), 3));
    std::vector<Gradient> const before = stored<Gradient>(random_values(s.columns, 4));
    for (Write const mode : {Write::overwrite, Write::add}) {
      auto const run = [&](ExecutionSpace const& exec) {
        DeviceTensor<T> const d_y_d(d_y);
        DeviceTensor<Gradient> const d_bias(before);
        bias_backward<T, Gradient>(exec, d_y_d.matrix(s.rows, s.columns), d_bias.vector(), mode);
        return widened(d_bias.values());
      };
      std::vector<double> const actual = run(ExecutionSpace());
      std::vector<double> expected(before.size());
      if (mode == Write::add) expected = widened(before);
      reference::bias_backward(widened(d_y), expected);
      // N + 1 terms of at most 2: sqrt(N + 1) roundings of at most 2 (N + 1)
      double const terms = static_cast<double>(s.rows + 1);
      CHECK(mismatches<double, double>(actual, expected,
                                       stored_within<Gradient>(2 * roundoff * terms * std::sqrt(terms))) == "");
      CHECK(run(ExecutionSpace()) == actual);
      CHECK(run(smaller_instance()) == actual);
    }
  }
}

TEST_CASE("a bias of another length is refused") {
  ExecutionSpace const exec;
  DeviceTensor<float> const x(15, 0.0F), bias(3, 0.0F);
  REQUIRE_THROWS_AS(add_bias<float>(exec, bias.vector(), x.matrix(3, 5)), Error);
  REQUIRE_THROWS_AS(bias_gelu_forward<float>(exec, bias.vector(), x.matrix(3, 5), x.matrix(3, 5)), Error);
  REQUIRE_THROWS_AS(bias_backward<float>(exec, x.matrix(3, 5), bias.vector(), Write::add), Error);
}
