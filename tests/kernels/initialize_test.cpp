#include "kernels/initialize.hpp"

#include "core/random.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <cmath>
#include <utility>

using namespace trainstone;
using namespace trainstone::test;

namespace {

template <class T>
std::vector<T> filled(Index count, Index first_counter, std::uint64_t seed = 42) {
  DeviceTensor<T> const out(count, T{});
  normal_fill<T>(ExecutionSpace(), seed, first_counter, 0.02, out.vector());
  return out.values();
}

} // namespace

TEMPLATE_LIST_TEST_CASE("initial values are normal numbers of their own counter", "", StorageTypes) {
  Index const first = (Index{1} << 33) + 5;
  std::vector<TestType> const values = filled<TestType>(101, first);
  for (std::size_t i = 0; i < values.size(); ++i) {
    double const expected = 0.02 * normal(42, RandomStream::initial_values, static_cast<std::uint64_t>(first) + i);
    REQUIRE(to_float(values[i]) == to_float(from_float<TestType>(static_cast<float>(expected))));
  }
}

TEST_CASE("changes since the initial values are added up, of any part of a tensor") {
  Index const first = (Index{1} << 33) + 5;
  for (auto const& [count, stddev] : {std::pair<Index, double>{101, 0.02}, {101, 0}, {1, 0.02}, {4, 0}, {0, 0.02}}) {
    INFO(count << " elements, standard deviation " << stddev);
    std::vector<float> values;
    double expected = 0;
    for (Index i = 0; i < count; ++i) {
      double const number = stddev * normal(42, RandomStream::initial_values, static_cast<std::uint64_t>(first + i));
      float const begun = stddev != 0 ? static_cast<float>(number) : 0.5F;
      values.push_back(begun + static_cast<float>(i % 5 - 2) / 1024);
      expected += std::abs(static_cast<double>(values.back()) - static_cast<double>(begun));
    }
    DeviceTensor<float> const x(values);
    DeviceTensor<double> const sum(1, -1.0);
    sum_of_changes(ExecutionSpace(), {42, first, stddev, 0.5F}, x.vector(), sum.vector());
    // in fp64: only the order of some hundred terms may differ
    CHECK_THAT(sum.values()[0], Catch::Matchers::WithinRel(expected, 1e-13) || Catch::Matchers::WithinAbs(expected, 0));
  }
}

TEST_CASE("parameters as they began have not changed") {
  std::vector<float> const values = filled<float>(1000, 77);
  DeviceTensor<float> const x(values);
  DeviceTensor<double> const sum(1, -1.0);
  sum_of_changes(ExecutionSpace(), {42, 77, 0.02, 0}, x.vector(), sum.vector());
  CHECK(sum.values()[0] == 0);
}

TEST_CASE("initial values do not depend on how the range is cut") {
  std::vector<float> const whole = filled<float>(1000, 77);
  std::vector<float> pieces;
  for (Index begin = 0; begin < 1000; begin += 333) {
    std::vector<float> const piece = filled<float>(std::min<Index>(333, 1000 - begin), 77 + begin);
    pieces.insert(pieces.end(), piece.begin(), piece.end());
  }
  CHECK(pieces == whole);
  CHECK(filled<float>(1000, 77, 43) != whole);
}
