#include "kernels/cross_entropy.hpp"

#include "core/error.hpp"
#include "kernels/reference/reference.hpp"
#include "support/compare.hpp"
#include "support/instances.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <limits>

using namespace trainstone;
using namespace trainstone::test;

namespace {

struct Sizes {
  Index rows, columns, vocab;
  Index elements() const { return rows * columns; }
};

Sizes const all_sizes[] = {{1, 1, 1}, {0, 4, 3}, {3, 5, 5}, {7, 128, 101}, {131, 13, 2}, {2, 1152, 1031}};

std::vector<std::int32_t> some_targets(Sizes const& s) {
  std::vector<std::int32_t> targets(static_cast<std::size_t>(s.rows));
  for (std::size_t n = 0; n < targets.size(); ++n)
    targets[n] = static_cast<std::int32_t>((static_cast<Index>(n) * 7 + s.vocab - 1) % s.vocab);
  return targets;
}

template <class T>
struct Result {
  std::vector<float> losses;
  std::vector<T> d_logits;
};

template <class T>
Result<T> backward(ExecutionSpace const& exec, Sizes const& s, std::vector<T> const& values, float scale) {
  DeviceTensor<T> const logits(values);
  DeviceTensor<float> const losses(s.rows, -1.0F);
  DeviceTensor<std::int32_t> const targets(some_targets(s));
  cross_entropy_backward_fused<T>(exec, logits.matrix(s.rows, s.columns), targets.vector(), s.vocab, scale,
                                  losses.vector());
  return {losses.values(), logits.values()};
}

template <class T>
std::vector<float> forward(ExecutionSpace const& exec, Sizes const& s, std::vector<T> const& values) {
  DeviceTensor<T> const logits(values);
  DeviceTensor<float> const losses(s.rows, -1.0F);
  DeviceTensor<std::int32_t> const targets(some_targets(s));
  cross_entropy_forward<T>(exec, logits.matrix(s.rows, s.columns), targets.vector(), s.vocab, losses.vector());
  return losses.values();
}

} // namespace

TEMPLATE_LIST_TEST_CASE("cross-entropy loss and gradient equal the reference", "", StorageTypes) {
  using T = TestType;
  ExecutionSpace const exec;
  for (Sizes const& s : all_sizes) {
    for (double const range : {1.0, 30.0}) {
      std::vector<T> const logits = stored<T>(random_values(s.elements(), 1, -range, range));
      float const scale = 0.125F;
      Result<T> const actual = backward(exec, s, logits, scale);
      std::vector<double> expected = widened(logits), losses(static_cast<std::size_t>(s.rows));
      reference::cross_entropy_backward_fused(expected, some_targets(s), s.vocab, static_cast<double>(scale), losses);

      // The sum's relative error: 3 u of the exponential, x - max rounded (2 range u), sqrt(512) of its blocks; the
      // loss is at most 2 range + log V, rounded once. The gradient: that relative error of a softmax <= 1.
      double const relative = roundoff * (3 + 2 * range + std::sqrt(512.0));
      CHECK(mismatches<float, double>(actual.losses, losses, relative + roundoff * (2 * range + 8)) == "");
      CHECK(mismatches<double, double>(widened(actual.d_logits), expected,
                                       stored_within<T>(2 * static_cast<double>(scale) * relative)) == "");
      CHECK(forward(exec, s, logits) == actual.losses);
    }
  }
}

TEST_CASE("padding columns take no part in the softmax and get gradient zero") {
  Sizes const s{3, 256, 131};
  std::vector<float> logits = random_values(s.elements(), 1);
  Result<float> const before = backward(ExecutionSpace(), s, logits, 1.0F);
  for (Index n = 0; n < s.rows; ++n)
    for (Index v = s.vocab; v < s.columns; ++v)
      logits[static_cast<std::size_t>(n * s.columns + v)] = std::numeric_limits<float>::quiet_NaN();
  Result<float> const after = backward(ExecutionSpace(), s, logits, 1.0F);
  CHECK(after.losses == before.losses);
  CHECK(after.d_logits == before.d_logits);
  for (Index n = 0; n < s.rows; ++n)
    for (Index v = s.vocab; v < s.columns; ++v)
      REQUIRE(after.d_logits[static_cast<std::size_t>(n * s.columns + v)] == 0.0F);
}

TEST_CASE("a NaN among the logits makes the loss NaN") {
  Sizes const s{2, 37, 37};
  std::vector<float> logits = random_values(s.elements(), 1);
  logits[37 + 5] = std::numeric_limits<float>::quiet_NaN();
  Result<float> const result = backward(ExecutionSpace(), s, logits, 1.0F);
  CHECK(std::isfinite(result.losses[0]));
  CHECK(std::isnan(result.losses[1]));
}

TEST_CASE("cross-entropy survives logits far beyond the range of the exponential") {
  Sizes const s{2, 33, 33};
  std::vector<float> logits = random_values(s.elements(), 1);
  logits[3] = 1e30F;
  logits[33 + 32] = -1e30F;
  Result<float> const result = backward(ExecutionSpace(), s, logits, 1.0F);
  CHECK(result.losses[0] == 1e30F - logits[32]);
  for (float const d : result.d_logits) REQUIRE(std::isfinite(d));
}

TEST_CASE("cross-entropy gives the same bits in every run and for any number of threads") {
  Sizes const s{17, 1152, 1031};
  std::vector<float> const logits = random_values(s.elements(), 1);
  Result<float> const first = backward(ExecutionSpace(), s, logits, 1.0F);
  for (ExecutionSpace const& exec : {ExecutionSpace(), smaller_instance()}) {
    Result<float> const again = backward(exec, s, logits, 1.0F);
    CHECK(first.losses == again.losses);
    CHECK(first.d_logits == again.d_logits);
  }
}

TEST_CASE("cross-entropy refuses a vocabulary wider than its rows and other lengths") {
  CHECK_THROWS_AS(backward(ExecutionSpace(), {2, 4, 5}, std::vector<float>(8), 1.0F), Error);
  CHECK_THROWS_AS(forward(ExecutionSpace(), {2, 4, 5}, std::vector<float>(8)), Error);
  DeviceTensor<float> const logits(8, 0.0F), losses(3, 0.0F);
  DeviceTensor<std::int32_t> const targets(2, 0);
  CHECK_THROWS_AS(
      cross_entropy_forward<float>(ExecutionSpace(), logits.matrix(2, 4), targets.vector(), 4, losses.vector()), Error);
}
