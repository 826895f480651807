#include "comm/execution/reduce.hpp"

#include "core/error.hpp"
#include "core/launch.hpp"
#include "core/types.hpp"
#include "support/instances.hpp"
#include "support/reduced_blocks.hpp"
#include "support/tools_guard.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

/// How far rounding to T may move a value, as a share of it.
template <class T>
constexpr double rounding = std::is_same_v<T, double> ? 0x1p-53
                            : std::is_same_v<T, bf16> ? 0x1p-8
                            : std::is_same_v<T, fp16> ? 0x1p-11
                                                      : 0x1p-24;

template <class W>
W combined(Operation operation, W a, W b) {
  if (operation == Operation::max) return std::max(a, b);
  if (operation == Operation::min) return std::min(a, b);
  if constexpr (std::is_integral_v<W>) {
    return static_cast<W>(static_cast<std::make_unsigned_t<W>>(a) + static_cast<std::make_unsigned_t<W>>(b));
  } else {
    return a + b;
  }
}

/// The definition: parts i and i+1 for even i first; what has no partner is carried to the next level.
template <class W>
W balanced_tree_of(Operation operation, std::vector<W> values) {
  while (values.size() > 1) {
    std::vector<W> next;
    for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
      next.push_back(combined(operation, values[i], values[i + 1]));
    }
    if (values.size() % 2 == 1) next.push_back(values.back());
    values = next;
  }
  return values.front();
}

template <class T>
std::vector<T> expected_result(Operation operation, std::size_t parts, std::size_t n) {
  std::vector<T> result;
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<Wide<T>> values;
    for (std::size_t part = 0; part < parts; ++part) values.push_back(wide(input<T>(part, i)));
    result.push_back(stored<T>(balanced_tree_of(operation, values)));
  }
  return result;
}

template <class T>
void combine_into(Operation operation, std::vector<T const*> const& parts, std::size_t n,
                  std::vector<T*> const& targets) {
  ExecutionSpace const exec;
  combine<T>(exec, operation, parts, static_cast<Index>(n), targets);
  exec.fence("test reads the result");
}

/// Into `targets` blocks of their own, or into the first `targets` of the parts themselves.
template <class T>
void check_combine(Operation operation, std::size_t parts, std::size_t n, std::size_t targets, bool in_place) {
  INFO(to_string(operation) << " of " << parts << " parts of " << n << " elements into " << targets
                            << (in_place ? " of them" : " others"));
  Blocks<T> const blocks(parts, n), others(in_place ? 0 : targets, n);
  Blocks<T> const& written = in_place ? blocks : others;
  combine_into<T>(operation, blocks.sources(), n, written.targets(targets));
  std::vector<T> const expected = expected_result<T>(operation, parts, n);
  auto const found = written.values(), kept = blocks.values();
  for (std::size_t target = 0; target < targets; ++target) REQUIRE(different_bits(found[target], expected) == "");
  for (std::size_t part = in_place ? targets : 0; part < parts; ++part) { // what is no target is not written
    std::vector<T> unchanged;
    for (std::size_t i = 0; i < n; ++i) unchanged.push_back(input<T>(part, i));
    REQUIRE(different_bits(kept[part], unchanged) == "");
  }
}

} // namespace

TEMPLATE_TEST_CASE("a combine equals the balanced tree bit for bit for any number of parts and elements",
                   "[comm][reduce]", ALL_TYPES) {
  for (Operation const operation : operations) {
    for (std::size_t const parts : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31, 41, 100}) {
      for (std::size_t const n : {0, 1, 2, 3, 17, 511, 513, 1009}) {
        check_combine<TestType>(operation, parts, n, 1, false);
      }
    }
  }
  for (std::size_t const parts : {2, 5, 8, 16}) check_combine<TestType>(Operation::sum, parts, 100003, 1, false);
}

TEMPLATE_TEST_CASE("a combine may write several targets, the parts themselves, too", "[comm][reduce]", ALL_TYPES) {
  for (Operation const operation : operations) {
    for (std::size_t const parts : {1, 2, 3, 4, 8, 9}) {
      for (std::size_t targets = 1; targets <= parts; ++targets) {
        for (bool const in_place : {false, true}) check_combine<TestType>(operation, parts, 1009, targets, in_place);
      }
    }
    check_combine<TestType>(operation, 2, 17, 5, false);
    check_combine<TestType>(operation, 2, 100003, 2, true);
  }
}

TEMPLATE_TEST_CASE("a sum lies as near to the exact one as its tree and one rounding allow", "[comm][reduce]", float,
                   double, bf16, fp16) {
  using W = Wide<TestType>;
  for (std::size_t const parts : {2, 3, 7, 16, 33}) {
    std::size_t const n = 1009;
    Blocks<TestType> const blocks(parts, n), result(1, n);
    combine_into<TestType>(Operation::sum, blocks.sources(), n, result.targets(1));
    std::vector<TestType> const sums = result.values()[0];
    double const levels = std::ceil(std::log2(static_cast<double>(parts)));
    for (std::size_t i = 0; i < n; ++i) {
      long double exact = 0;
      double absolute = 0;
      for (std::size_t part = 0; part < parts; ++part) {
        exact += wide(input<TestType>(part, i));
        absolute += std::abs(static_cast<double>(wide(input<TestType>(part, i))));
      }
      // each addition loses at most a roundoff of its result; then one rounding to storage
      double const in_tree = is_narrow<TestType> || sizeof(W) == 4 ? 0x1p-24 : 0x1p-53;
      double const bound =
          1.001 * (levels * in_tree * absolute + rounding<TestType> * std::abs(static_cast<double>(exact)));
      INFO(parts << " parts, element " << i);
      REQUIRE(std::abs(static_cast<double>(wide(sums[i]) - exact)) <= bound + 0x1p-25);
    }
  }
}

TEMPLATE_TEST_CASE("a reduction adds its source to its target and a copy copies every bit", "[comm][reduce]",
                   ALL_TYPES) {
  ExecutionSpace const exec;
  for (std::size_t const n : {0, 1, 2, 3, 17, 1009, 100003}) {
    for (Operation const operation : operations) {
      INFO(to_string(operation) << " of " << n << " elements");
      Blocks<TestType> const blocks(2, n);
      reduce<TestType>(exec, operation, blocks.vector(1), blocks.vector(0));
      exec.fence("test reads the result");
      CHECK(different_bits(blocks.values()[0], expected_result<TestType>(operation, 2, n)) == "");
    }
    Blocks<TestType> const blocks(2, n);
    std::vector<TestType> const source = blocks.values()[1];
    copy<TestType>(exec, blocks.vector(1), blocks.vector(0));
    exec.fence("test reads the result");
    CHECK(different_bits(blocks.values()[0], source) == "");
  }
}

TEMPLATE_TEST_CASE("a NaN in any part survives every operation and touches no other element", "[comm][reduce]", float,
                   double, bf16, fp16) {
  auto const nan = stored<TestType>(std::numeric_limits<Wide<TestType>>::quiet_NaN());
  for (Operation const operation : operations) {
    for (std::size_t const parts : {2, 3, 8, 9}) {
      for (std::size_t poisoned = 0; poisoned < parts; ++poisoned) {
        std::size_t const n = 37, place = 5 * poisoned % n;
        Blocks<TestType> const result(1, n), blocks(parts, n, [&](std::size_t part, std::size_t i) {
          return part == poisoned && i == place ? nan : input<TestType>(part, i);
        });
        combine_into<TestType>(operation, blocks.sources(), n, result.targets(1));
        std::vector<TestType> const values = result.values()[0];
        for (std::size_t i = 0; i < n; ++i) {
          INFO(to_string(operation) << " of " << parts << " parts, NaN in " << poisoned << ", element " << i);
          REQUIRE(std::isnan(static_cast<double>(wide(values[i]))) == (i == place));
        }
      }
    }
  }
}

TEMPLATE_TEST_CASE("maxima and minima of zeros have the same sign in any order", "[comm][reduce]", float, double, bf16,
                   fp16) {
  for (bool const minus_first : {false, true}) {
    Blocks<TestType> const result(2, 1), zeros(2, 1, [&](std::size_t part, std::size_t) {
      return stored<TestType>((part == 0) == minus_first ? -Wide<TestType>(0) : Wide<TestType>(0));
    });
    combine_into<TestType>(Operation::max, zeros.sources(), 1, {result.begin(0)});
    combine_into<TestType>(Operation::min, zeros.sources(), 1, {result.begin(1)});
    CHECK(!std::signbit(wide(result.values()[0][0])));
    CHECK(std::signbit(wide(result.values()[1][0])));
  }
}

TEST_CASE("16-bit sums are rounded once", "[comm][reduce]") {
  // 256 + 1 is a tie that goes down in bf16: added one by one they would stay 256.
  auto const value = [](std::size_t part, std::size_t) { return from_float<bf16>(part == 0 ? 256 : 1); };
  Blocks<bf16> const values(4, 1, value), result(1, 1);
  combine_into<bf16>(Operation::sum, values.sources(), 1, result.targets(1));
  CHECK(to_float(result.values()[0][0]) == 260); // 259 rounded to a multiple of 2, ties to even
}

TEST_CASE("kernels of any size are labelled, counted and delayed, and run on the given instance", "[comm][reduce]") {
  ExecutionSpace const exec = distinct_instance();
  std::size_t const targets = 2;
  for (std::size_t const n : {1, 1009, 100003}) {
    Blocks<float> const blocks(3, n);
    std::vector<std::string> delayed;
    Counters const before = counters();
    ToolsGuard const guard(exec);
    DelayPoint::Scoped const recording(delay_point(), [&](char const* label) { delayed.emplace_back(label); });
    reduce<float>(exec, Operation::sum, blocks.vector(1), blocks.vector(0));
    copy<float>(exec, blocks.vector(1), blocks.vector(0));
    push<float>(exec, blocks.vector(1), blocks.vector(2));
    combine<float>(exec, Operation::sum, blocks.sources(), static_cast<Index>(n), blocks.targets(targets));
    INFO(fmt::format("{}", fmt::join(guard.violations(), "\n")));
    CHECK(guard.violations().empty());
    CHECK(guard.kernels() == std::vector<std::string>{"trainstone::comm::reduce", "trainstone::comm::copy",
                                                      "trainstone::comm::push", "trainstone::comm::combine"});
    CHECK(delayed == guard.kernels());
    CHECK(counters().launches[Phase::communication] - before.launches[Phase::communication] == 4);
    CHECK(counters().flops[Phase::communication] - before.flops[Phase::communication] == n + 2 * n);
    CHECK(counters().bytes[Phase::communication] - before.bytes[Phase::communication] ==
          (3 + 2 + 2 + 3 + targets) * n * sizeof(float));
  }
}

TEST_CASE("a reduction, a copy or a combine of what does not fit together is refused", "[comm][reduce]") {
  ExecutionSpace const exec;
  std::vector<float> three(3), four(4);
  Vector<float const> const source(three.data(), 3);
  Vector<float> const target(four.data(), 4);
  CHECK_THROWS_AS(reduce<float>(exec, Operation::sum, source, target), Error);
  CHECK_THROWS_AS(copy<float>(exec, source, target), Error);
  CHECK_THROWS_AS(combine_into<float>(Operation::sum, {}, 3, {four.data()}), Error);
  CHECK_THROWS_AS(combine_into<float>(Operation::sum, {three.data()}, 3, {}), Error);
  CHECK_THROWS_AS(combine<float>(exec, Operation::sum, std::vector<float const*>(65537, three.data()), 1,
                                 std::vector<float*>{four.data()}),
                  Error);
}
