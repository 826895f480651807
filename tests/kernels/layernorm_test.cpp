#include "kernels/layernorm.hpp"

#include "core/error.hpp"
#include "kernels/reference.hpp"
#include "kernels/residual.hpp"
#include "support/compare.hpp"
#include "support/instances.hpp"
#include "support/views.hpp"

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

struct Backward {
  std::vector<float> d_x, d_gamma, d_beta;
};

Backward backward(ExecutionSpace const& exec, Sizes const& s, std::vector<float> const& mean,
                  std::vector<float> const& rstd, Write mode) {
  DeviceTensor<float> const d_y(random_values(s.elements(), 6)), x(rows_with_offset(s, 0)),
      gamma(random_values(s.columns, 2)), mean_d(mean), rstd_d(rstd), d_x(s.elements(), 1.0F), d_gamma(s.columns, 2.0F),
      d_beta(s.columns, 3.0F);
  layernorm_backward<float>(exec, d_y.matrix(s.rows, s.columns), x.matrix(s.rows, s.columns), gamma.vector(),
                            mean_d.vector(), rstd_d.vector(), d_x.matrix(s.rows, s.columns), mode, d_gamma.vector(),
                            d_beta.vector(), mode);
  return {d_x.values(), d_gamma.values(), d_beta.values()};
}

/// Statistics of the backward pass's x, as the forward pass keeps them.
Forward statistics(Sizes const& s) {
  Forward result(s);
  std::vector<double> const ones(static_cast<std::size_t>(s.columns), 1.0);
  reference::layernorm_forward(widened(rows_with_offset(s, 0)), ones, ones, result.y, result.mean, result.rstd);
  return result;
}

std::vector<float> narrowed(std::vector<double> const& values) { return {values.begin(), values.end()}; }

} // namespace

TEST_CASE("layer norm forward equals the reference") {
  ExecutionSpace const exec;
  for (Sizes const& s : all_sizes) {
    for (double const offset : {0.0, 100.0}) {
      std::vector<float> const x = rows_with_offset(s, offset);
      std::vector<float> const gamma = random_values(s.columns, 2), beta = random_values(s.columns, 3);
      DeviceTensor<float> const x_d(x), gamma_d(gamma), beta_d(beta), y(s.elements(), 9.0F), mean(s.rows, 9.0F),
          rstd(s.rows, 9.0F);
      layernorm_forward<float>(exec, x_d.matrix(s.rows, s.columns), gamma_d.vector(), beta_d.vector(),
                               y.matrix(s.rows, s.columns), mean.vector(), rstd.vector());
      Forward expected(s);
      reference::layernorm_forward(widened(x), widened(gamma), widened(beta), expected.y, expected.mean, expected.rstd);

      // The mean is the fp32 sum of blocks of at most 512 terms (sqrt(512) roundings) and rounded once; its error
      // shifts all deviations by as much. Then five roundings of y, |y| <= 6 (|norm|, |gamma|, |beta| <= 2). Two
      // columns can have a small deviation, hence rstd.
      double const shift = roundoff * (offset + 1.0) * (1 + std::sqrt(std::min(512.0, static_cast<double>(s.columns))));
      double const rstd_most = largest<double>(expected.rstd);
      CHECK(mismatches<float, double>(mean.values(), expected.mean, shift) == "");
      CHECK(mismatches<float, double>(rstd.values(), expected.rstd,
                                      [&](double r) { return 4 * roundoff * r + shift * shift * r * r * r; }) == "");
      CHECK(mismatches<float, double>(y.values(), expected.y, 2 * shift * rstd_most + 5 * roundoff * 6) == "");
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

TEST_CASE("residual add fused with layer norm equals the two, bit by bit, and may write over its inputs") {
  ExecutionSpace const exec;
  for (Sizes const& s : all_sizes) {
    std::vector<float> const x = random_values(s.elements(), 4), branch = random_values(s.elements(), 5);
    std::vector<float> const bias = random_values(s.columns, 6);
    DeviceTensor<float> const x_d(x), branch_d(branch), bias_d(bias), gamma(random_values(s.columns, 2)),
        beta(random_values(s.columns, 3)), sum(s.elements(), 9.0F), y(s.elements(), 9.0F), mean(s.rows, 9.0F),
        rstd(s.rows, 9.0F);
    auto const matrix = [&](DeviceTensor<float> const& tensor) { return tensor.matrix(s.rows, s.columns); };
    residual_forward<float>(exec, matrix(x_d), matrix(branch_d), bias_d.vector(), matrix(sum));
    layernorm_forward<float>(exec, matrix(sum), gamma.vector(), beta.vector(), matrix(y), mean.vector(), rstd.vector());

    std::vector<double> expected(x.size());
    reference::residual_forward(widened(x), widened(branch), widened(bias), expected);
    // two roundings, of partial sums of at most 4 and 6
    CHECK(mismatches<float, double>(sum.values(), expected, roundoff * (4 + 6)) == "");

    DeviceTensor<float> const fused_mean(s.rows, 0.0F), fused_rstd(s.rows, 0.0F);
    residual_layernorm_forward<float>(exec, matrix(x_d), matrix(branch_d), bias_d.vector(), gamma.vector(),
                                      beta.vector(), matrix(x_d), matrix(branch_d), fused_mean.vector(),
                                      fused_rstd.vector());
    CHECK(x_d.values() == sum.values());
    CHECK(branch_d.values() == y.values());
    CHECK(fused_mean.values() == mean.values());
    CHECK(fused_rstd.values() == rstd.values());
  }
}

TEST_CASE("layer norm backward equals the reference in both modes") {
  ExecutionSpace const exec;
  for (Sizes const& s : all_sizes) {
    Forward const forward = statistics(s);
    std::vector<float> const mean = narrowed(forward.mean), rstd = narrowed(forward.rstd);
    for (Write const mode : {Write::overwrite, Write::add}) {
      Backward const actual = backward(exec, s, mean, rstd, mode);
      double const before = mode == Write::add ? 1.0 : 0.0;
      std::vector<double> d_x(static_cast<std::size_t>(s.elements()), before);
      std::vector<double> d_gamma(static_cast<std::size_t>(s.columns), 2 * before), d_beta(d_gamma.size(), 3 * before);
      reference::layernorm_backward(widened(random_values(s.elements(), 6)), widened(rows_with_offset(s, 0)),
                                    widened(random_values(s.columns, 2)), widened(mean), widened(rstd), d_x, d_gamma,
                                    d_beta);
      // d_x: rstd times terms of at most 4, 4 and 2 * 8, each after a few roundings; d_gamma, d_beta: sums of N terms
      // of at most 2 * 2 rstd_most (|x - mean| <= 2), sqrt(N) roundings of at most N times that, plus the old value
      double const rstd_most = std::max(1.0, largest<double>(forward.rstd));
      double const rows = static_cast<double>(s.rows);
      CHECK(mismatches<float, double>(actual.d_x, d_x, roundoff * (8 * rstd_most * 24 + before)) == "");
      double const bound = roundoff * (4 * rstd_most * rows * (std::sqrt(rows) + 4) + 6 * before);
      CHECK(mismatches<float, double>(actual.d_gamma, d_gamma, bound) == "");
      CHECK(mismatches<float, double>(actual.d_beta, d_beta, bound) == "");
    }
  }
}

TEST_CASE("layer norm backward gives the same bits in every run and for any number of threads") {
  Sizes const s{131, 771};
  Forward const forward = statistics(s);
  std::vector<float> const mean = narrowed(forward.mean), rstd = narrowed(forward.rstd);
  Backward const first = backward(ExecutionSpace(), s, mean, rstd, Write::overwrite);
  for (ExecutionSpace const& exec : {ExecutionSpace(), smaller_instance()}) {
    Backward const again = backward(exec, s, mean, rstd, Write::overwrite);
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
