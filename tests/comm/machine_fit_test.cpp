#include "comm/prediction/machine_fit.hpp"

#include "comm/prediction/fitted_machine.hpp"
#include "comm/prediction/non_negative_least_squares.hpp"
#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>

using namespace trainstone;
using Catch::Matchers::WithinRel;

namespace {

using Time = std::function<double(double)>;

/// 8 bytes to 64 MiB by powers of two, as calibrate measures; `noise` is the largest relative deviation.
std::vector<TimeSample> measure(Time const& time, double noise = 0, std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<TimeSample> samples;
  for (double bytes = 8; bytes <= 64.0 * 1024 * 1024; bytes *= 2) {
    double const unit = static_cast<double>(random()) / static_cast<double>(std::mt19937::max());
    samples.push_back({bytes, time(bytes) * (1 + noise * (2 * unit - 1))});
  }
  return samples;
}

double line(double bytes) { return 1e-6 + bytes * 1e-10; }
/// Caches end at 300,000 bytes: from there on every byte takes three times as long.
double convex(double bytes) { return line(bytes) + std::max(0.0, bytes - 3e5) * 2e-10; }
/// Overheads that large messages hide: bytes beyond 50,000 cost a third.
double concave(double bytes) { return 1e-6 + std::min(bytes, 5e4) * 3e-10 + std::max(0.0, bytes - 5e4) * 1e-10; }
/// Another protocol from above 65536 bytes on: 20 us more.
double jump(double bytes) { return line(bytes) + (bytes > 65536 ? 20e-6 : 0); }

double worst_between(PiecewiseLinear const& curve, Time const& time, double from, double to) {
  double worst = 0;
  for (double bytes = from; bytes <= to; bytes *= 1.05)
    worst = std::max(worst, std::abs(curve(bytes) / time(bytes) - 1));
  return worst;
}

bool never_falls(PiecewiseLinear const& curve) {
  double last = 0;
  for (double bytes = 0; bytes < 2e8; bytes = std::max(bytes + 1, bytes * 1.001)) {
    double const now = curve(bytes);
    if (now < last * (1 - 1e-12)) return false; // the knots are rounded
    last = now;
  }
  return true;
}

} // namespace

TEST_CASE("an exact line is found again, as one line", "[fit]") {
  FittedCurve const fit = fit_curve(measure(line));
  REQUIRE(fit.curve.pieces().size() == 1);
  CHECK_THAT(fit.curve.pieces()[0].start, WithinRel(1e-6, 1e-9));
  CHECK_THAT(fit.curve.pieces()[0].per_byte, WithinRel(1e-10, 1e-9));
  CHECK(fit.errors.worst < 1e-9);
  CHECK(fit.errors.samples.size() == 24);
}

TEST_CASE("noise of 5 percent on a line makes no further lines and small errors", "[fit]") {
  for (std::uint32_t seed = 1; seed <= 100; ++seed) {
    FittedCurve const fit = fit_curve(measure(line, 0.05, seed));
    INFO("seed " << seed);
    CHECK(fit.curve.pieces().size() == 1);
    // 24 samples, uniform in +-5 %: standard deviation 2.9 %, of a parameter from half of them 2.9 % / sqrt(12)
    CHECK(worst_between(fit.curve, line, 8, 6e7) < 4 * 0.029 / std::sqrt(12.0));
  }
}

TEST_CASE("a knee is found where it is, up or down", "[fit]") {
  for (auto const& [time, knee] : {std::pair<Time, double>{convex, 3e5}, {concave, 5e4}}) {
    FittedCurve const fit = fit_curve(measure(time));
    REQUIRE(fit.curve.pieces().size() == 2);
    CHECK_THAT(fit.curve.pieces()[1].from_bytes, WithinRel(knee, 1e-6));
    CHECK(worst_between(fit.curve, time, 8, 6e7) < 1e-6);
  }
}

TEST_CASE("a jump is found between the samples around it", "[fit]") {
  FittedCurve const fit = fit_curve(measure(jump));
  REQUIRE(fit.curve.pieces().size() == 2);
  CHECK(fit.curve.pieces()[1].from_bytes > 65536);
  CHECK(fit.curve.pieces()[1].from_bytes < 131072);
  CHECK_THAT(fit.curve.pieces()[1].start - fit.curve.pieces()[0].start, WithinRel(20e-6, 1e-6));
  CHECK(fit.errors.worst < 1e-9);
}

TEST_CASE("three knees and a jump under noise stay within four lines, 10 percent, and never fall", "[fit]") {
  Time const hard = [](double bytes) { return jump(bytes) + std::max(0.0, bytes - 4e6) * 3e-10; };
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    FittedCurve const fit = fit_curve(measure(hard, 0.05, seed));
    INFO("seed " << seed);
    CHECK(fit.curve.pieces().size() >= 2);
    CHECK(fit.curve.pieces().size() <= 4);
    CHECK(never_falls(fit.curve));
    // sizes that were not measured, away from the jump, whose place inside its gap nobody can know
    CHECK(worst_between(fit.curve, hard, 8, 6e4) < 0.1);
    CHECK(worst_between(fit.curve, hard, 131072, 6e7) < 0.1);
  }
}

TEST_CASE("a curve never falls and is never negative, whatever is measured", "[fit]") {
  // Times that fall with size: nothing better than a constant is left.
  FittedCurve const falling = fit_curve(measure([](double bytes) { return 1e-5 / (1 + std::log2(bytes)); }));
  CHECK(never_falls(falling.curve));
  CHECK(falling.curve(0) > 0);
  // A steep line that would begin below zero.
  FittedCurve const steep = fit_curve(measure([](double bytes) { return 1e-12 * std::pow(bytes, 1.3); }));
  CHECK(never_falls(steep.curve));
  CHECK(steep.curve(0) >= 0);
  for (std::uint32_t seed = 1; seed <= 20; ++seed) { // pure noise
    CHECK(never_falls(fit_curve(measure([](double) { return 1e-6; }, 0.9, seed)).curve));
  }
}

TEST_CASE("one sample, one size and constant times are constants", "[fit]") {
  FittedCurve const one = fit_curve(std::vector<TimeSample>{{1024, 3e-6}});
  REQUIRE(one.curve.pieces().size() == 1);
  CHECK_THAT(one.curve(0), WithinRel(3e-6, 1e-12));
  CHECK_THAT(one.curve(1e9), WithinRel(3e-6, 1e-12));
  CHECK(one.from_bytes == 1024);
  CHECK(one.to_bytes == 1024);

  FittedCurve const size = fit_curve(std::vector<TimeSample>{{7, 2e-6}, {7, 2e-6}, {7, 2e-6}, {7, 2e-6}, {7, 2e-6}});
  CHECK_THAT(size.curve(7e6), WithinRel(2e-6, 1e-12));

  FittedCurve const constant = fit_curve(measure([](double) { return 5e-6; }));
  REQUIRE(constant.curve.pieces().size() == 1);
  CHECK_THAT(constant.curve(1e9), WithinRel(5e-6, 1e-9));

  FittedCurve const two = fit_curve(std::vector<TimeSample>{{8, 1e-6}, {16, 1.5e-6}});
  CHECK_THAT(two.curve(12), WithinRel(1.25e-6, 1e-9));
}

TEST_CASE("few samples are not interpolated by many lines", "[fit]") {
  std::vector<TimeSample> const samples{{8, 1.0e-6}, {64, 1.1e-6}, {512, 0.95e-6}, {4096, 1.5e-6}, {8192, 1.7e-6}};
  CHECK(fit_curve(samples).curve.pieces().size() == 1);
  std::vector<TimeSample> const two_exact_lines{{8, 1.0e-6}, {64, 1.1e-6}, {512, 1.3e-6}, {4096, 1.5e-6}};
  CHECK(fit_curve(two_exact_lines).curve.pieces().size() == 1);
}

TEST_CASE("no curve of as many lines is nearer than the fitted one", "[fit]") {
  // The noise is so large that the best lines without regard to their order often fall where they meet.
  int compared = 0;
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    for (Time const& time : {Time(convex), Time(concave), Time(jump)}) {
      std::vector<TimeSample> const samples = measure(time, 0.6, seed);
      FittedCurve const fit = fit_curve(samples, 2);
      if (fit.curve.pieces().size() < 2) continue;
      double of_truth = 0, of_fit = 0;
      for (TimeSample const& sample : samples) {
        of_truth += std::pow(time(sample.bytes) / sample.seconds - 1, 2);
        of_fit += std::pow(fit.curve(sample.bytes) / sample.seconds - 1, 2);
      }
      CHECK(of_fit <= of_truth * (1 + 1e-9));
      ++compared;
    }
  }
  CHECK(compared > 50);
}

TEST_CASE("the order of the samples does not matter", "[fit]") {
  std::vector<TimeSample> samples = measure(convex, 0.05);
  FittedCurve const ascending = fit_curve(samples);
  std::ranges::reverse(samples);
  CHECK(fit_curve(samples).curve == ascending.curve);
}

TEST_CASE("samples that are no times are refused", "[fit]") {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(fit_curve(std::vector<TimeSample>{}), Error);
  CHECK_THROWS_AS(fit_curve(std::vector<TimeSample>{{8, 0}}), Error);
  CHECK_THROWS_AS(fit_curve(std::vector<TimeSample>{{-1, 1e-6}}), Error);
  CHECK_THROWS_AS(fit_curve(std::vector<TimeSample>{{8, nan}}), Error);
  CHECK_THROWS_AS(fit_curve(measure(line), 0), Error);
}

TEST_CASE("errors are relative, of held-out samples too", "[fit]") {
  PiecewiseLinear const curve(1e-6, 0);
  FitErrors const errors = errors_of(curve, std::vector<TimeSample>{{16, 2e-6}, {8, 1e-6}, {32, 0.8e-6}});
  REQUIRE(errors.relative.size() == 3);
  CHECK(errors.relative[0] == 0); // 8 bytes
  CHECK_THAT(errors.relative[1], WithinRel(-0.5, 1e-12));
  CHECK_THAT(errors.relative[2], WithinRel(0.25, 1e-12));
  CHECK_THAT(errors.median, WithinRel(0.25, 1e-12));
  CHECK_THAT(errors.worst, WithinRel(0.5, 1e-12));
  CHECK(errors_of(curve, std::vector<TimeSample>{{16, 2e-6}, {8, 1e-6}}).median == 0.25);
}

TEST_CASE("predictions outside of what was measured are told", "[fit]") {
  FittedCurve const fit = fit_curve(measure(line));
  CHECK(fit.extrapolates(7));
  CHECK(!fit.extrapolates(8));
  CHECK(!fit.extrapolates(64.0 * 1024 * 1024));
  CHECK(fit.extrapolates(64.0 * 1024 * 1024 + 1));
}

TEST_CASE("least squares that may not be negative bind what would be", "[fit]") {
  using Impl::non_negative_least_squares;
  // 2 (1,0,0) + 3 (1,1,0) exactly; the third column would need a negative coefficient to help
  std::vector<double> x = non_negative_least_squares({{1, 0, 0}, {1, 1, 0}, {0, 0, -1}}, {5, 3, 0.5});
  CHECK_THAT(x[0], WithinRel(2.0, 1e-12));
  CHECK_THAT(x[1], WithinRel(3.0, 1e-12));
  CHECK(x[2] == 0);
  // free: x = (3, -1); with x1 bound, x0 = (1+2)/2
  x = non_negative_least_squares({{1, 1}, {2, 1}}, {1, 2});
  CHECK_THAT(x[0], WithinRel(1.5, 1e-12));
  CHECK(x[1] == 0);
  x = non_negative_least_squares({{0, 0}, {1, 1}}, {2, 2});
  CHECK(x[0] == 0);
  CHECK_THAT(x[1], WithinRel(2.0, 1e-12));
  CHECK(non_negative_least_squares({{1, 1}}, {-1, -1}) == std::vector<double>{0});
  CHECK(non_negative_least_squares({}, {1}).empty());
}

TEST_CASE("least squares that may not be negative cannot be lowered any further", "[fit]") {
  // Convex: a point is the least one if the error falls along no coordinate that may still move.
  std::mt19937 random(1);
  auto const number = [&] { return static_cast<double>(random()) / static_cast<double>(std::mt19937::max()) - 0.3; };
  int bound = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::size_t const rows = 3 + random() % 9, unknowns = 1 + random() % 7;
    std::vector<Impl::Column> columns(unknowns, Impl::Column(rows));
    for (Impl::Column& column : columns) std::ranges::generate(column, number);
    Impl::Column target(rows);
    std::ranges::generate(target, number);
    std::vector<double> const x = Impl::non_negative_least_squares(columns, target);
    std::vector<double> left = target;
    for (std::size_t k = 0; k < unknowns; ++k)
      for (std::size_t i = 0; i < rows; ++i) left[i] -= x[k] * columns[k][i];
    for (std::size_t k = 0; k < unknowns; ++k) {
      double gain = 0;
      for (std::size_t i = 0; i < rows; ++i) gain += left[i] * columns[k][i];
      INFO("trial " << trial << ", unknown " << k << " = " << x[k]);
      CHECK(x[k] >= 0);
      CHECK(gain < 1e-6); // normal equations: half of the digits
      if (x[k] > 0) CHECK(gain > -1e-6);
      bound += x[k] == 0 ? 1 : 0;
    }
  }
  CHECK(bound > 100);
}

TEST_CASE("a measured machine says what was not measured", "[fit]") {
  FittedMachine machine;
  machine.message[0] = machine.one_way[0] = fit_curve(measure(line));
  machine.overlap[0] = 0.5;
  machine.reduce = machine.copy = fit_curve(measure(concave));
  CHECK(machine.missing_for(Topology::one_node(3), false).empty());
  CHECK(machine.missing_for(Topology::one_node(1), true).empty());
  CHECK(machine.missing_for(Topology::one_node(3), true) ==
        "sums in shared memory, copies in shared memory, barriers of a node");
  CHECK(machine.missing_for(Topology::block(5, 2), false) == "messages between nodes");
  machine.fetch = fit_curve(std::vector<TimeSample>{{8, 2e-7}, {1024, 3e-7}});
  CHECK(machine.model().push == machine.fetch->curve); // of a program that did not measure it
  machine.push = fit_curve(std::vector<TimeSample>{{8, 1e-7}, {1024, 2e-7}});
  CHECK(machine.model().push == machine.push->curve);
  CHECK(FittedMachine{}.missing_for(Topology::block(2, 2), true) == "messages between nodes, reductions, copies");
  CHECK(machine.extrapolates_message(Link::inter, 64));
  CHECK(machine.extrapolates_message(Link::intra, 4));
  CHECK(!machine.extrapolates_message(Link::intra, 64));
  CHECK(machine.model().of(Link::intra) == machine.message[0]->curve);
  CHECK(machine.model().of(Link::inter) == PiecewiseLinear());
  CHECK(machine.model().one_way[0] == machine.one_way[0]->curve);
  CHECK(machine.model().overlap == std::array{0.5, 1.0});
  CHECK(machine.model().reduce == machine.reduce->curve);
}
