#include "comm/execution/reduce.hpp"

#include "core/error.hpp"
#include "core/launch.hpp"
#include "core/random.hpp"
#include "core/types.hpp"
#include "support/instances.hpp"
#include "support/tools_guard.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

constexpr Operation operations[] = {Operation::sum, Operation::max, Operation::min};

template <class T>
constexpr bool is_narrow = std::is_same_v<T, bf16> || std::is_same_v<T, fp16>;
template <class T>
using Wide = std::conditional_t<is_narrow<T>, float, T>;

template <class T>
Wide<T> wide(T value) {
  if constexpr (is_narrow<T>) {
    return to_float(value);
  } else {
    return value;
  }
}

template <class T>
T stored(Wide<T> value) {
  if constexpr (is_narrow<T>) {
    return from_float<T>(value);
  } else {
    return value;
  }
}

template <class T>
constexpr bool is_floating = !std::is_integral_v<T>;

/// How far rounding to T may move a value, as a share of it.
template <class T>
constexpr double rounding = std::is_same_v<T, double> ? 0x1p-53
                            : std::is_same_v<T, bf16> ? 0x1p-8
                            : std::is_same_v<T, fp16> ? 0x1p-11
                                                      : 0x1p-24;

/// Different in every element and part; integers wrap around when they are added.
template <class T>
T input(std::size_t part, std::size_t i) {
  auto const word = random_block(7, RandomStream::tests, (part << 32) + i).words[0];
  if constexpr (is_floating<T>) {
    return stored<T>(static_cast<Wide<T>>(4 * uniform(word) - 2));
  } else {
    return static_cast<T>((std::uint64_t{word} << (8 * sizeof(T) - 32)) + i);
  }
}

/// `parts` blocks of n elements in kernels' memory, each behind a gap so that no two are aligned alike.
template <class T>
class Blocks {
public:
  /// Element i of a part is value(part, i).
  template <class Value>
  Blocks(std::size_t parts, std::size_t n, Value const& value) : m_parts(parts), m_n(n), m_memory(fill(value)) {}
  Blocks(std::size_t parts, std::size_t n) : Blocks(parts, n, input<T>) {}

  T* begin(std::size_t part) const { return m_memory.vector().data() + offset(part); }
  Vector<T> vector(std::size_t part) const { return Vector<T>(begin(part), m_n); }
  std::vector<T const*> sources() const {
    std::vector<T const*> found;
    for (std::size_t part = 0; part < m_parts; ++part) found.push_back(begin(part));
    return found;
  }
  std::vector<T*> targets(std::size_t count) const {
    std::vector<T*> found;
    for (std::size_t part = 0; part < count; ++part) found.push_back(begin(part));
    return found;
  }
  /// What all parts hold now.
  std::vector<std::vector<T>> values() const {
    std::vector<T> const all = m_memory.values();
    std::vector<std::vector<T>> found;
    for (std::size_t part = 0; part < m_parts; ++part)
      found.emplace_back(all.data() + offset(part), all.data() + offset(part) + m_n);
    return found;
  }

private:
  std::size_t offset(std::size_t part) const { return part * (m_n + 5) + part % 5; }
  template <class Value>
  std::vector<T> fill(Value const& value) const {
    std::vector<T> all(offset(m_parts), T{});
    for (std::size_t part = 0; part < m_parts; ++part)
      for (std::size_t i = 0; i < m_n; ++i) all[offset(part) + i] = value(part, i);
    return all;
  }

  std::size_t m_parts, m_n;
  DeviceTensor<T> m_memory;
};

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

/// Empty if all bits are equal; else the first elements that differ.
template <class T>
std::string different_bits(std::vector<T> const& actual, std::vector<T> const& expected) {
  if (expected.empty() || std::memcmp(actual.data(), expected.data(), expected.size() * sizeof(T)) == 0) return "";
  std::string text;
  for (std::size_t i = 0, count = 0; i < expected.size() && count < 5; ++i) {
    if (std::memcmp(&actual[i], &expected[i], sizeof(T)) == 0) continue;
    text += fmt::format("\n  [{}] {}, expected {}", i, wide(actual[i]), wide(expected[i]));
    ++count;
  }
  return text;
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

#define ALL_TYPES float, double, std::int32_t, std::int64_t, bf16, fp16

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

TEMPLATE_TEST_CASE("a device's way to combine gives the bits of the host's, for any number of parts", "[comm][reduce]",
                   float, double, bf16, fp16, std::int32_t, std::int64_t) {
  ExecutionSpace const exec;
  constexpr Index n = 37;
  for (std::size_t const count : {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 64, 100, 127, 128}) {
    auto const value = [](std::size_t part, std::size_t i) {
      auto const number = static_cast<double>((part * 37 + i * 11) % 97);
      return stored<TestType>(static_cast<Wide<TestType>>(number / (is_floating<TestType> ? 7 : 1)));
    };
    std::size_t const targets = count % 2 == 0 ? 1 : count; // of the device's
    Blocks<TestType> const parts(count, n, value), results(1 + targets, n);
    std::vector<TestType*> to;
    for (std::size_t target = 1; target <= targets; ++target) to.push_back(results.begin(target));
    for (Operation const operation : operations) {
      INFO(count << " parts, " << to_string(operation));
      combine<TestType>(exec, operation, parts.sources(), n, std::array{results.begin(0)});
      Impl::combine_by_element<TestType>(exec, operation, parts.sources(), n, to);
      exec.fence("trainstone::test: the host compares");
      auto const values = results.values();
      for (std::size_t target = 1; target <= targets; ++target) CHECK(different_bits(values[target], values[0]) == "");
    }
  }
  std::vector<float> part(1);
  std::vector<float const*> const many(static_cast<std::size_t>(most_device_parts) + 1, part.data());
  std::vector<float*> const one{part.data()}, as_many(many.size(), part.data());
  CHECK_THROWS_AS(Impl::combine_by_element<float>(exec, Operation::sum, many, 1, one), Error);
  CHECK_THROWS_AS(Impl::combine_by_element<float>(exec, Operation::sum, std::span(many).first(1), 1, as_many), Error);
}

TEMPLATE_TEST_CASE("what a device combines and copies sixteen bytes at a time has the same bits", "[comm][reduce]",
                   ALL_TYPES) {
  ExecutionSpace const exec;
  constexpr std::size_t stride = 64;
  for (std::size_t const count : {1, 2, 3, 4, 7, 8, 9, 16})
    for (std::size_t const n : {0, 1, 3, 16, 37, 64}) {
      std::vector<TestType> values;
      for (std::size_t i = 0; i < (count + 2) * stride; ++i) values.push_back(input<TestType>(i / stride, i % stride));
      test::DeviceTensor<TestType> const memory(values);
      auto const row = [&](std::size_t number) { return memory.vector().data() + number * stride; };
      std::vector<TestType const*> parts;
      std::vector<TestType*> targets;
      for (std::size_t part = 0; part < count; ++part) {
        parts.push_back(row(part));
        targets.push_back(row(part));
      }
      combine<TestType>(exec, Operation::sum, parts, static_cast<Index>(n), std::array{row(count)});
      Impl::combine_by_element<TestType>(exec, Operation::sum, parts, static_cast<Index>(n), targets);
      Impl::copy_by_element<TestType>(exec, row(0), static_cast<Index>(n), row(count + 1));
      exec.fence("trainstone::test: the host compares");
      std::vector<TestType> const found = memory.values();
      for (std::size_t i = 0; i < found.size(); ++i)
        values[i] = i % stride < n ? found[count * stride + i % stride] : values[i];
      INFO(count << " parts, " << n << " elements");
      CHECK(different_bits(found, values) == "");
    }
}
