#include "train/data/sample_order.hpp"

#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

using namespace trainstone;

namespace {

std::vector<std::int64_t> shuffled(std::uint64_t seed, std::int64_t epoch, std::int64_t n) {
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < n; ++i) places.push_back(permuted(seed, epoch, n, i));
  return places;
}

} // namespace

TEST_CASE("the sample order is a bijection for every size, seed and epoch") {
  std::int64_t const n = GENERATE(1, 2, 3, 4, 5, 17, 1000, 4096, 65537);
  for (std::uint64_t const seed : {std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max()}) {
    for (std::int64_t const epoch : {std::int64_t{0}, std::int64_t{1} << 40}) {
      if (n > 5000 && (seed != 1 || epoch != 0)) continue; // keeps the debug build fast
      CAPTURE(n, seed, epoch);
      std::vector<bool> seen(static_cast<std::size_t>(n), false);
      std::int64_t repeated = 0;
      for (std::int64_t const place : shuffled(seed, epoch, n)) {
        REQUIRE((0 <= place && place < n));
        repeated += seen[static_cast<std::size_t>(place)];
        seen[static_cast<std::size_t>(place)] = true;
      }
      CHECK(repeated == 0);
    }
  }
}

TEST_CASE("the sample order differs between epochs and between seeds") {
  std::set<std::vector<std::int64_t>> orders;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    for (std::int64_t epoch = 0; epoch < 5; ++epoch) orders.insert(shuffled(seed, epoch, 1000));
  }
  CHECK(orders.size() == 25);
  CHECK(shuffled(3, 2, 1000) == shuffled(3, 2, 1000));
}

TEST_CASE("over many epochs every sample comes to every place equally often") {
  std::int64_t const n = GENERATE(2, 3, 7, 16, 31);
  std::int64_t const epochs = 4000;
  std::vector<double> counts(static_cast<std::size_t>(n * n), 0);
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    std::vector<std::int64_t> const order = shuffled(11, epoch, n);
    for (std::size_t i = 0; i < order.size(); ++i) ++counts[i * order.size() + static_cast<std::size_t>(order[i])];
  }
  double const expected = static_cast<double>(epochs) / static_cast<double>(n);
  double chi_squared = 0;
  for (double const count : counts) chi_squared += (count - expected) * (count - expected) / expected;
  // (n - 1)^2 degrees of freedom d: mean d, deviation sqrt(2 d); six deviations are far out even for d = 1 (p = 0.002)
  double const freedom = static_cast<double>((n - 1) * (n - 1));
  CAPTURE(n, chi_squared, freedom);
  CHECK(chi_squared < freedom + 6 * std::sqrt(2 * freedom));
}

TEST_CASE("an order leaves no trace of the original: neighbours are as far apart as random ones") {
  std::int64_t const n = 4099;
  std::vector<std::int64_t> const order = shuffled(5, 0, n);
  double distance = 0;
  std::int64_t fixed = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    distance += std::abs(static_cast<double>(order[i] - order[(i + 1) % order.size()])) / static_cast<double>(n);
    fixed += order[i] == static_cast<std::int64_t>(i);
  }
  // |difference| of two uniform numbers: mean 1/3, deviation sqrt(1/18) = 0.236; five deviations of the mean of n
  CHECK(std::abs(distance / static_cast<double>(n) - 1.0 / 3) < 5 * 0.236 / std::sqrt(static_cast<double>(n)));
  CHECK(fixed <= 8); // Poisson with mean 1: more than 8 in one of a million orders
}

TEST_CASE("orders of more than 2^32 samples stay in range and differ") {
  std::int64_t const n = (std::int64_t{1} << 62) + 12345;
  std::set<std::int64_t> places;
  for (std::int64_t i = 0; i < 100; ++i) {
    std::int64_t const place = permuted(1, 0, n, n - 1 - i);
    REQUIRE((0 <= place && place < n));
    places.insert(place);
  }
  CHECK(places.size() == 100);
  CHECK(permuted(1, 0, std::numeric_limits<std::int64_t>::max(), 0) >= 0);
}

TEST_CASE("the stream shows every sample once per epoch and goes on where an epoch ends inside a step") {
  std::int64_t const n = 10;
  std::int64_t const global = 4; // epochs end in the middle of steps 2, 7, 12, ...
  std::vector<std::int64_t> stream;
  for (std::int64_t step = 0; step < 10; ++step) {
    for (std::int64_t row = 0; row < global; ++row) stream.push_back(training_sample(9, n, step, global, row));
  }
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    std::vector<std::int64_t> const part(stream.begin() + epoch * n, stream.begin() + (epoch + 1) * n);
    CAPTURE(epoch);
    CHECK(part == shuffled(9, epoch, n));
  }
}

TEST_CASE("a global batch larger than the data runs through several epochs in one step") {
  std::set<std::int64_t> samples;
  for (std::int64_t row = 0; row < 3; ++row) samples.insert(training_sample(1, 3, 5, 12, row));
  CHECK(samples.size() == 3);
}

TEST_CASE("steps of epochs are the fewest that show every sample so often") {
  CHECK(steps_of_epochs(1, 10, 4) == 3);
  CHECK(steps_of_epochs(2, 10, 4) == 5);
  CHECK(steps_of_epochs(1, 1, 64) == 1);
  CHECK(steps_of_epochs(3, 64, 64) == 3);
}

TEST_CASE("places and rows out of range are refused") {
  CHECK_THROWS_AS(permuted(1, 0, 3, 3), Error);
  CHECK_THROWS_AS(permuted(1, 0, 3, -1), Error);
  CHECK_THROWS_AS(permuted(1, 0, 0, 0), Error);
  CHECK_THROWS_AS(permuted(1, -1, 3, 0), Error);
  CHECK_THROWS_AS(training_sample(1, 3, 0, 4, 4), Error);
}
