#include "kernels/layernorm.hpp"

#include "core/error.hpp"
#include "kernels/reference/reference.hpp"
#include "kernels/residual.hpp"
#include "support/compare.hpp"
#include "support/instances.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cstring>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Sizes {
  Index rows, columns;
  Index elements() const { return rows * columns; }
};

// columns beyond one block of a sum (512) and one tile of columns (256); rows beyond one block of column sums (64)
Sizes const all_sizes[] = {{1, 1}, {0, 5}, {3, 2}, {7, 13}, {131, 17}, {2, 768}, {5, 1031}};

/// Rows with mean 100 times their deviation must not lose the variance.
std::vector<float> rows_with_offset(Sizes const& s, double offset) {
  return random_values(s.elements(), 1, offset - 1.0, offset + 1.0);
}

struct Forward {
  std::vector<double> sum, y, mean, rstd;

  explicit Forward(Sizes const& s)
      : sum(static_cast<std::size_t>(s.elements())),
        y(sum.size()),
        mean(static_cast<std::size_t>(s.rows)),
        rstd(mean.size()) {}
};

/// The arguments of the backward pass, as they are stored.
template <class T>
struct BackwardInput {
  explicit BackwardInput(Sizes const& s)
      : d_y(stored<T>(random_values(s.elements(), 6))),
        x(stored<T>(rows_with_offset(s, 0))),
        gamma(stored<T>(random_values(s.columns, 2))) {}
  std::vector<T> d_y, x, gamma;
};

struct Backward {
  std::vector<double> d_x, d_gamma, d_beta;
};

template <class T, class Gradient>
Backward backward(ExecutionSpace const& exec, Sizes const& s, std::vector<float> const& mean,
                  std::vector<float> const& rstd, Write mode) {
  BackwardInput<T> const input(s);
  DeviceTensor<T> const d_y(input.d_y), x(input.x), gamma(input.gamma), d_x(s.elements(), from_float<T>(1.0F));
  DeviceTensor<float> const mean_d(mean), rstd_d(rstd);
  DeviceTensor<Gradient> const d_gamma(s.columns, from_float<Gradient>(2.0F)),
      d_beta(s.columns, from_float<Gradient>(3.0F));
  layernorm_backward<T, Gradient>(exec, d_y.matrix(s.rows, s.columns), x.matrix(s.rows, s.columns), gamma.vector(),
                                  mean_d.vector(), rstd_d.vector(), d_x.matrix(s.rows, s.columns), mode,
                                  d_gamma.vector(), d_beta.vector(), mode);
  return {widened(d_x.values()), widened(d_gamma.values()), widened(d_beta.values())};
}

/// Statistics of the backward pass's x, as the forward pass keeps them.
template <class T>
Forward statistics(Sizes const& s) {
  Forward result(s);
  std::vector<double> const ones(static_cast<std::size_t>(s.columns), 1.0);
  reference::layernorm_forward(widened(BackwardInput<T>(s).x), ones, ones, result.y, result.mean, result.rstd);
  return result;
}

std::vector<float> narrowed(std::vector<double> const& values) { return {values.begin(), values.end()}; }

} // namespace

TEMPLATE_LIST_TEST_CASE("layer norm forward equals the reference", "", StorageTypes) {
  using T = TestType;
  ExecutionSpace const exec;
  for (Sizes const& s : all_sizes) {
    for (double const offset : {0.0, 100.0}) {
      std::vector<T> const x = stored<T>(rows_with_offset(s, offset));
      std::vector<T> const gamma = stored<T>(random_values(s.columns, 2)),
                           beta = stored<T>(random_values(s.columns, 3));
      DeviceTensor<T> const x_d(x), gamma_d(gamma), beta_d(beta), y(s.elements(), T{});
      DeviceTensor<float> const mean(s.rows, 9.0F), rstd(s.rows, 9.0F);
      layernorm_forward<T>(exec, x_d.matrix(s.rows, s.columns), gamma_d.vector(), beta_d.vector(),
                           y.matrix(s.rows, s.columns), mean.vector(), rstd.vector());
      Forward expected(s);
      reference::layernorm_forward(widened(x), widened(gamma), widened(beta), expected.y, expected.mean, expected.rstd);

      // The mean is the fp32 sum of blocks of at most 512 terms (sqrt(512) roundings) and rounded once; its error
      // shifts all deviations by as much. The squares' sum has as many roundings, of which the root leaves half to
      // rstd. Then five roundings of y, |y| <= 6 (|norm|, |gamma|, |beta| <= 2). Two columns can have a small
      // deviation, hence rstd.
      double const additions = std::sqrt(std::min(512.0, static_cast<double>(s.columns)));
      double const shift = roundoff * (offset + 1.0) * (1 + additions);
      double const rstd_most = largest<double>(expected.rstd);
      CHECK(mismatches<float, double>(mean.values(), expected.mean, shift) == "");
      CHECK(mismatches<float, double>(rstd.values(), expected.rstd, [&](double r) {
              return (4 + additions / 2) * roundoff * r + shift * shift * r * r * r;
            }) == "");
      CHECK(mismatches<double, double>(widened(y.values()), expected.y,
                                       stored_within<T>(2 * shift * rstd_most + 5 * roundoff * 6)) == "");
    }
  }
}

TEST_CASE("layer norm forward in place gives the same bits") {
  ExecutionSpace const exec;
  Sizes const s{3, 771};
  DeviceTensor<float> const x(rows_with_offset(s, 1)), gamma(random_values(s.columns, 2)),
      beta(random_values(s.columns, 3)), y(s.elements(), 0.0F), mean(s.rows, 0.0F), rstd(s.rows, 0.0F);
  auto const run = [&](Matrix<float> out) {
    layernorm_forward<float>(exec, x.matrix(s.rows, s.columns), gamma.vector(), beta.vector(), out, mean.vector(),
                             rstd.vector());
  };
  run(y.matrix(s.rows, s.columns));
  run(x.matrix(s.rows, s.columns));
  CHECK(x.values() == y.values());
}

TEMPLATE_LIST_TEST_CASE("residual add fused with layer norm equals the two, bit by bit, and may write over its inputs",
                        "", StorageTypes) {
  using T = TestType;
  ExecutionSpace const exec;
  for (Sizes const& s : all_sizes) {
    std::vector<T> const x = stored<T>(random_values(s.elements(), 4));
    std::vector<T> const branch = stored<T>(random_values(s.elements(), 5));
    std::vector<T> const bias = stored<T>(random_values(s.columns, 6));
    DeviceTensor<T> const x_d(x), branch_d(branch), bias_d(bias), gamma(stored<T>(random_values(s.columns, 2))),
        beta(stored<T>(random_values(s.columns, 3))), sum(s.elements(), T{}), y(s.elements(), T{});
    DeviceTensor<float> const mean(s.rows, 9.0F), rstd(s.rows, 9.0F);
    auto const matrix = [&](DeviceTensor<T> const& tensor) { return tensor.matrix(s.rows, s.columns); };
    residual_forward<T>(exec, matrix(x_d), matrix(branch_d), bias_d.vector(), matrix(sum));
    layernorm_forward<T>(exec, matrix(sum), gamma.vector(), beta.vector(), matrix(y), mean.vector(), rstd.vector());

    std::vector<double> expected(x.size());
    reference::residual_forward(widened(x), widened(branch), widened(bias), expected);
    // two roundings, of partial sums of at most 4 and 6
    CHECK(mismatches<double, double>(widened(sum.values()), expected, stored_within<T>(roundoff * (4 + 6))) == "");

    DeviceTensor<float> const fused_mean(s.rows, 0.0F), fused_rstd(s.rows, 0.0F);
    residual_layernorm_forward<T>(exec, matrix(x_d), matrix(branch_d), bias_d.vector(), gamma.vector(), beta.vector(),
                                  matrix(x_d), matrix(branch_d), fused_mean.vector(), fused_rstd.vector());
    CHECK(widened(x_d.values()) == widened(sum.values()));
    CHECK(widened(branch_d.values()) == widened(y.values()));
    CHECK(fused_mean.values() == mean.values());
    CHECK(fused_rstd.values() == rstd.values());
  }
}

TEMPLATE_LIST_TEST_CASE("layer norm backward equals the reference in both modes", "", StorageAndGradientTypes) {
  using T = typename TestType::Storage;
  using Gradient = typename TestType::Gradient;
  ExecutionSpace const exec;
  for (Sizes const& s : all_sizes) {
    Forward const forward = statistics<T>(s);
    BackwardInput<T> const input(s);
    std::vector<float> const mean = narrowed(forward.mean), rstd = narrowed(forward.rstd);
    for (Write const mode : {Write::overwrite, Write::add}) {
      Backward const actual = backward<T, Gradient>(exec, s, mean, rstd, mode);
      double const before = mode == Write::add ? 1.0 : 0.0;
      std::vector<double> d_x(static_cast<std::size_t>(s.elements()), before);
      std::vector<double> d_gamma(static_cast<std::size_t>(s.columns), 2 * before), d_beta(d_gamma.size(), 3 * before);
      reference::layernorm_backward(widened(input.d_y), widened(input.x), widened(input.gamma), widened(mean),
                                    widened(rstd), d_x, d_gamma, d_beta);
      // d_x: rstd times terms of at most 4, 4 and 2 * 8, each after a few roundings; d_gamma, d_beta: sums of N terms
      // of at most 2 * 2 rstd_most (|x - mean| <= 2), sqrt(N) roundings of at most N times that, plus the old value
      double const rstd_most = std::max(1.0, largest<double>(forward.rstd));
      double const rows = static_cast<double>(s.rows);
      CHECK(mismatches<double, double>(actual.d_x, d_x, stored_within<T>(roundoff * (8 * rstd_most * 24 + before))) ==
            "");
      double const bound = roundoff * (4 * rstd_most * rows * (std::sqrt(rows) + 4) + 6 * before);
      CHECK(mismatches<double, double>(actual.d_gamma, d_gamma, stored_within<Gradient>(bound)) == "");
      CHECK(mismatches<double, double>(actual.d_beta, d_beta, stored_within<Gradient>(bound)) == "");
    }
  }
}

TEST_CASE("layer norm backward gives the same bits in every run and for any number of threads") {
  Sizes const s{131, 771};
  Forward const forward = statistics<float>(s);
  std::vector<float> const mean = narrowed(forward.mean), rstd = narrowed(forward.rstd);
  Backward const first = backward<float, float>(ExecutionSpace(), s, mean, rstd, Write::overwrite);
  for (ExecutionSpace const& exec : {ExecutionSpace(), smaller_instance()}) {
    Backward const again = backward<float, float>(exec, s, mean, rstd, Write::overwrite);
    CHECK(first.d_x == again.d_x);
    CHECK(first.d_gamma == again.d_gamma);
    CHECK(first.d_beta == again.d_beta);
  }
}

TEST_CASE("layer norm names both shapes when extents differ") {
  ExecutionSpace const exec;
  DeviceTensor<float> const x(15, 0.0F), c(5, 0.0F), n(3, 0.0F);
  REQUIRE_THROWS_WITH(
      layernorm_forward<float>(exec, x.matrix(3, 5), n.vector(), c.vector(), x.matrix(3, 5), n.vector(), n.vector()),
      ContainsSubstring("gamma has shape (3), expected (5)"));
  REQUIRE_THROWS_WITH(residual_forward<float>(exec, x.matrix(3, 5), x.matrix(5, 3), c.vector(), x.matrix(3, 5)),
                      ContainsSubstring("branch has shape (5, 3), expected (3, 5)"));
}
