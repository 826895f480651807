#include "kernels/initialize.hpp"

#include "core/random.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

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
