#include "kernels/dropout.hpp"

#include "core/error.hpp"
#include "core/launch.hpp"
#include "kernels/reference/reference.hpp"
#include "support/compare.hpp"
#include "support/instances.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace trainstone;
using namespace trainstone::test;

namespace {

struct Sizes {
  Index batch, sequence, columns;
  Index rows() const { return batch * sequence; }
  Index elements() const { return rows() * columns; }
};

// columns around the four of a random block
Sizes const all_sizes[] = {{1, 1, 1}, {0, 5, 3}, {3, 2, 0}, {2, 7, 13}, {5, 3, 160}, {1, 2, 1031}};

// samples beyond 32 bits, a seed of 64
Dropout const typical{.rate = 0.3, .seed = 0x123456789ABCDEFULL, .first_sample = (1ULL << 32) - 2, .site = 70001};

std::vector<double> factors_of(Dropout const& dropout, Sizes const& sizes) {
  std::vector<double> factors(static_cast<std::size_t>(sizes.elements()));
  reference::dropout_factors({dropout.rate, dropout.seed, dropout.first_sample, dropout.site}, sizes.sequence, 0,
                             sizes.columns, factors);
  return factors;
}

/// What dropout of ones leaves: the factors themselves.
std::vector<float> dropped_ones(Dropout const& dropout, Sizes const& sizes,
                                ExecutionSpace const& exec = ExecutionSpace()) {
  DeviceTensor<float> const x(sizes.elements(), 1.0F);
  dropout_forward<float>(exec, dropout, sizes.sequence, {}, x.matrix(sizes.rows(), sizes.columns), {});
  return x.values();
}

} // namespace

TEMPLATE_LIST_TEST_CASE("dropout forward and backward equal the reference, with masks kept or computed again", "",
                        StorageTypes) {
  using T = TestType;
  ExecutionSpace const exec;
  for (Sizes const& s : all_sizes) {
    std::vector<double> const factors = factors_of(typical, s);
    std::vector<T> const x = stored<T>(random_values(s.elements(), 1)), bias = stored<T>(random_values(s.columns, 2));
    std::vector<double> expected = widened(x), without_bias = widened(x);
    reference::add_bias(widened(bias), expected);
    reference::dropout(factors, expected);
    reference::dropout(factors, without_bias);
    // |x + bias| <= 4, times 1 / 0.7: two roundings, one of the scale, and the storing
    auto const close = stored_within<T>(3 * roundoff * 4 / 0.7);

    DeviceTensor<T> const forward(x), unbiased(x), bias_d(bias), d_y(x);
    DeviceTensor<MaskByte> const mask(s.elements(), MaskByte{9});
    Matrix<MaskByte> const kept = mask.matrix(s.rows(), s.columns);
    dropout_forward<T>(exec, typical, s.sequence, bias_d.vector(), forward.matrix(s.rows(), s.columns), kept);
    dropout_forward<T>(exec, typical, s.sequence, {}, unbiased.matrix(s.rows(), s.columns), {});
    CHECK(mismatches<double, double>(widened(forward.values()), expected, close) == "");
    CHECK(mismatches<double, double>(widened(unbiased.values()), without_bias, close) == "");
    std::vector<MaskByte> const bytes = mask.values();
    CHECK(std::ranges::equal(bytes, factors, {}, {}, [](double factor) { return factor > 0 ? 1 : 0; }));

    DeviceTensor<T> const d_x(s.elements(), from_float<T>(9.0F));
    for (Matrix<MaskByte const> const& from : {Matrix<MaskByte const>(kept), Matrix<MaskByte const>()}) {
      dropout_backward<T>(exec, typical, s.sequence, from, d_y.matrix(s.rows(), s.columns),
                          d_x.matrix(s.rows(), s.columns));
      CHECK(widened(d_x.values()) == widened(unbiased.values())); // to the bit
    }
  }
}

TEST_CASE("dropout drops as often as its rate says, and keeps the mean") {
  Sizes const sizes{4, 100, 250};
  for (double const rate : {0.1, 0.5, 0.9}) {
    std::vector<float> const values = dropped_ones({.rate = rate, .seed = 3}, sizes);
    auto const dropped = static_cast<double>(std::ranges::count(values, 0.0F));
    auto const count = static_cast<double>(values.size());
    // binomial: five standard deviations are exceeded once in 1.7 million seeds
    CHECK(std::abs(dropped - rate * count) < 5 * std::sqrt(count * rate * (1 - rate)));
    CHECK(std::ranges::count(values, static_cast<float>(1 / (1 - rate))) == std::ssize(values) - std::llround(dropped));
  }
}

TEST_CASE("a mask belongs to seed, sample, position and site, not to the micro-batch") {
  Sizes const two{2, 5, 64}, one{1, 5, 64};
  Dropout const dropout{.rate = 0.5, .seed = 7, .first_sample = 40, .site = 3};
  std::vector<float> const both = dropped_ones(dropout, two);
  auto const elements = static_cast<std::ptrdiff_t>(one.elements());
  std::vector<float> const first(both.begin(), both.begin() + elements), second(both.begin() + elements, both.end());
  Dropout next = dropout;
  next.first_sample = 41;
  CHECK(dropped_ones(dropout, one) == first);
  CHECK(dropped_ones(next, one) == second);

  Dropout other_seed = dropout, other_high_seed = dropout, other_site = dropout, later = dropout;
  other_seed.seed = 8;
  other_high_seed.seed += 1ULL << 32;
  other_site.site = 4;
  later.first_sample += 1ULL << 32;
  for (Dropout const& other : {other_seed, other_high_seed, other_site, later, next})
    CHECK(dropped_ones(other, one) != first);
  std::vector<float> const position_0(first.begin(), first.begin() + 64),
      position_1(first.begin() + 64, first.begin() + 128);
  CHECK(position_0 != position_1);

  Dropout from_2 = dropout; // the last three of five positions
  from_2.first_position = 2;
  CHECK(dropped_ones(from_2, {1, 3, 64}) == std::vector<float>(first.begin() + 2 * 64, first.end()));
}

TEST_CASE("dropout of some of the features drops what it drops of whole rows") {
  Sizes const whole{2, 3, 23};
  std::vector<float> const all = dropped_ones(typical, whole);
  for (Index const first : {0, 4, 5, 11, 22}) {
    INFO("from feature " << first);
    Sizes const part{2, 3, whole.columns - first};
    Dropout of_part = typical;
    of_part.first_feature = first;
    std::vector<float> expected;
    for (Index row = 0; row < whole.rows(); ++row)
      expected.insert(expected.end(), all.begin() + row * whole.columns + first,
                      all.begin() + (row + 1) * whole.columns);
    CHECK(dropped_ones(of_part, part) == expected);
  }
}

TEST_CASE("dropout gives the same bits for any number of threads") {
  Sizes const sizes{3, 17, 45};
  CHECK(dropped_ones(typical, sizes) == dropped_ones(typical, sizes, smaller_instance()));
}

TEST_CASE("dropout refuses what it cannot do") {
  ExecutionSpace const exec;
  DeviceTensor<float> const x(24, 1.0F);
  auto const drop = [&](Dropout const& dropout, Index sequence = 2, Index mask_rows = 4) {
    DeviceTensor<MaskByte> const mask(24, MaskByte{0});
    dropout_forward<float>(exec, dropout, sequence, {}, x.matrix(4, 6), mask.matrix(mask_rows, 24 / mask_rows));
  };
  CHECK_NOTHROW(drop({.rate = 0.5}));
  for (double const rate : {1.0, -0.1, std::numeric_limits<double>::quiet_NaN()})
    CHECK_THROWS_AS(drop({.rate = rate}), Error);
  CHECK_THROWS_AS(drop({.rate = 0.5, .first_sample = 1ULL << 44}), Error);
  CHECK_THROWS_AS(drop({.rate = 0.5, .site = 1U << 24}), Error);
  CHECK_THROWS_AS(drop({.rate = 0.5, .first_position = (1 << 20) - 1}), Error);
  CHECK_THROWS_AS(drop({.rate = 0.5, .first_position = -1}), Error);
  CHECK_THROWS_AS(drop({.rate = 0.5, .first_feature = -1}), Error);
  CHECK_THROWS_AS(drop({.rate = 0.5}, 3), Error);
  CHECK_THROWS_AS(drop({.rate = 0.5}, 2, 2), Error);
  Index const positions = 1 << 20;
  Matrix<float> const none = x.matrix(0, 6);
  CHECK_NOTHROW(dropout_forward<float>(exec, {.rate = 0.5}, positions, {}, none, {}));
  CHECK_THROWS_AS(dropout_forward<float>(exec, {.rate = 0.5}, positions + 1, {}, none, {}), Error);
  CHECK_THROWS_AS(dropout_backward<float>(exec, {.rate = 0.5}, positions + 1, {}, none, none), Error);
}
