#include "result/statistics.hpp"

#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <vector>

using namespace trainstone;
using Catch::Matchers::WithinRel;

TEST_CASE("the median of an even number of samples is the mean of the two in the middle", "[statistics]") {
  CHECK(median(std::vector{4.0, 1.0, 3.0, 2.0}) == 2.5);
  CHECK(median(std::vector{5.0, 1.0, 3.0}) == 3.0);
  CHECK(median(std::vector{7.0}) == 7.0);
}

TEST_CASE("quantiles interpolate between order statistics", "[statistics]") {
  std::vector const samples{10.0, 0.0, 5.0}; // sorted 0 5 10: share s lies at 10 s
  CHECK(quantile(samples, 0) == 0);
  CHECK(quantile(samples, 0.25) == 2.5);
  CHECK(quantile(samples, 1) == 10);
}

TEST_CASE("a summary holds mean, median, quantiles and extremes", "[statistics]") {
  std::vector<double> samples;
  for (int i = 100; i >= 0; --i) samples.push_back(i);
  Summary const summary = summarize(samples);
  CHECK(summary.mean == 50);
  CHECK(summary.median == 50);
  CHECK_THAT(summary.p05, WithinRel(5.0, 1e-14)); // one rounding of 0.05 * 100
  CHECK_THAT(summary.p95, WithinRel(95.0, 1e-14));
  CHECK(summary.minimum == 0);
  CHECK(summary.maximum == 100);
}

TEST_CASE("no samples have no statistics", "[statistics]") {
  std::vector<double> const none;
  CHECK_THROWS_AS(mean(none), Error);
  CHECK_THROWS_AS(median(none), Error);
  CHECK_THROWS_AS(rate(1, none), Error);
}

TEST_CASE("a rate is all tokens over all time, not a mean of rates", "[statistics]") {
  Rate const found = rate(300, std::vector{1.0, 2.0, 3.0});
  CHECK(found.value == 50);
  CHECK(found.low >= 100.0 / 3); // all three resampled steps take 3 s
  CHECK(found.high <= 100);      // ... or 1 s
  CHECK(found.low < 50);
  CHECK(found.high > 50);
}

TEST_CASE("equal steps leave no doubt about the rate", "[statistics]") {
  Rate const found = rate(40, std::vector(20, 0.5));
  CHECK(found.value == 4);
  CHECK(found.low == 4);
  CHECK(found.high == 4);
}

TEST_CASE("equal samples give equal confidence intervals", "[statistics]") {
  std::vector const seconds{1.0, 1.1, 0.9, 1.3, 1.05};
  CHECK(rate(5, seconds).low == rate(5, seconds).low);
  CHECK(rate(5, seconds).high == rate(5, seconds).high);
}

TEST_CASE("the interval covers the true rate in most of many trials", "[statistics]") {
  // Steps of 1 + u seconds, u from a fixed sequence in [0, 1): the true rate of one token per step is 1/1.5.
  // The bootstrap covers slightly less than 95 % on 40 samples; 85 of 100 is four standard deviations below.
  std::uint64_t state = 1;
  int covered = 0;
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<double> seconds(40);
    for (double& time : seconds) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      time = 1 + static_cast<double>(state >> 40) * 0x1p-24;
    }
    Rate const found = rate(40, seconds);
    covered += found.low <= 1 / 1.5 && 1 / 1.5 <= found.high;
  }
  CHECK(covered >= 85);
}
