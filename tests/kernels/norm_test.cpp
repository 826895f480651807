#include "kernels/norm.hpp"

#include "core/counters.hpp"
#include "core/error.hpp"
#include "kernels/reference/reference.hpp"
#include "support/compare.hpp"
#include "support/instances.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <limits>

using namespace trainstone;
using namespace trainstone::test;

namespace {

template <class T>
double norm_of(ExecutionSpace const& exec, std::vector<T> const& values) {
  DeviceTensor<T> const x(values);
  DeviceTensor<double> const blocks(static_cast<Index>(values.size()) / norm_block, -1.0), result(1, -1.0);
  squared_block_sums<T>(exec, x.vector(), blocks.vector());
  tree_sum(exec, blocks.vector(), result.vector());
  return result.values().front();
}

double sum_of(ExecutionSpace const& exec, std::vector<float> const& values) {
  DeviceTensor<float> const x(values);
  DeviceTensor<double> const result(1, -1.0);
  sum(exec, x.vector(), result.vector());
  return result.values().front();
}

/// The tree of the contract, written down as a recursion: the left half is the largest power of two below n.
double tree(std::vector<double> const& values, std::size_t begin, std::size_t count) {
  if (count == 1) return values[begin];
  std::size_t left = 1;
  while (2 * left < count) left *= 2;
  return tree(values, begin, left) + tree(values, begin + left, count - left);
}

/// Positive values over many powers of two: fp64 rounds differently in other trees.
std::vector<double> terms_of_many_sizes(std::size_t count) {
  std::vector<double> values;
  for (float const value : random_values(static_cast<Index>(count), 4, 1.0, 2.0))
    values.push_back(std::ldexp(static_cast<double>(value), -static_cast<int>(values.size() * 7 % 31)));
  return values;
}

} // namespace

TEMPLATE_LIST_TEST_CASE("the squared norm equals the reference", "", StorageTypes) {
  for (Index const blocks : {0, 1, 2, 3, 5, 8, 31, 67}) {
    std::vector<TestType> const x = stored<TestType>(random_values(blocks * norm_block, 1));
    double const expected = reference::squared_norm(widened(x));
    // positive terms: sqrt(256) roundings of fp32, relative to each block
    CHECK(std::abs(norm_of(ExecutionSpace(), x) - expected) <= 16 * roundoff * expected);
  }
}

TEST_CASE("the squared norm adds blocks in the balanced binary tree") {
  // Blocks of one non-zero element each with exact squares 2^(-4 i mod 60): fp64 rounds differently in other trees.
  for (std::size_t const blocks : {1u, 2u, 3u, 6u, 7u, 33u, 100u}) {
    std::vector<float> x(blocks * norm_block);
    std::vector<double> squares(blocks);
    for (std::size_t i = 0; i < blocks; ++i) {
      float const value = std::ldexp(1.0F + 0x1p-10F * static_cast<float>(i + 1), -static_cast<int>(i * 7 % 31));
      x[i * norm_block + i % norm_block] = value;
      squares[i] = static_cast<double>(value * value);
    }
    CHECK(norm_of(ExecutionSpace(), x) == tree(squares, 0, blocks));
  }
}

TEST_CASE("a tree of several kernels has the bits of the recursion", "[norm]") {
  ExecutionSpace const exec;
  std::size_t const leaves = tree_leaves;
  for (std::size_t const count :
       {std::size_t{0}, std::size_t{1}, std::size_t{4095}, leaves, leaves + 1, leaves + 7, 2 * leaves - 1, 2 * leaves,
        3 * leaves + 1000, std::size_t{27686}, std::size_t{150912}}) {
    std::vector<double> const values = terms_of_many_sizes(count);
    DeviceTensor<double> const all(values), result(1, -1.0);
    std::uint64_t const before = total_launches(counters());
    tree_sum(exec, all.vector(), result.vector());
    CHECK(total_launches(counters()) - before == (count > leaves ? 2 : 1));
    CHECK(tree_sum_launches(static_cast<Index>(count)) == (count > leaves ? 2 : 1));
    CHECK(result.values().front() == (count == 0 ? 0.0 : tree(values, 0, count)));
  }
  CHECK(tree_sum_launches(tree_leaves * tree_leaves) == 2);
  CHECK(tree_sum_launches(tree_leaves * tree_leaves + 1) == 3);
}

TEST_CASE("trees of many sections have the bits of one tree each, and as many kernels as the tallest", "[norm]") {
  ExecutionSpace const exec;
  std::vector<Index> const counts{3, 0, 2 * tree_leaves + 5, 1, tree_leaves, 67, tree_leaves + 1};
  for (std::size_t const repeats : {1u, 10u, 19u}) { // up to 133 sections: of 64 a kernel
    std::vector<TreeSection> sections;
    Index end = 2; // values between sections stay
    for (std::size_t i = 0; i < repeats * counts.size(); ++i) {
      sections.push_back({end, counts[i % counts.size()]});
      end += counts[i % counts.size()] + 3;
    }
    std::vector<double> const values = terms_of_many_sizes(static_cast<std::size_t>(end));
    DeviceTensor<double> const all(values), results(std::ssize(sections), -1.0);
    std::uint64_t const before = total_launches(counters());
    tree_sums(exec, all.vector(), sections, results.vector());
    std::uint64_t const launches = 2 * ((sections.size() + 63) / 64);
    CHECK(total_launches(counters()) - before == launches);
    CHECK(tree_sums_launches(sections) == launches);
    std::vector<double> expected;
    for (auto const& [begin, count] : sections)
      expected.push_back(count == 0 ? 0.0
                                    : tree(values, static_cast<std::size_t>(begin), static_cast<std::size_t>(count)));
    CHECK(results.values() == expected);
    std::vector<double> const left = all.values();
    for (auto const& [begin, count] : sections) {
      auto const last = static_cast<std::size_t>(begin + count);
      CHECK(left[last] == values[last]);
    }
  }
  CHECK(tree_sums_launches({}) == 0);
  std::vector<TreeSection> const low(64, TreeSection{0, tree_leaves});
  CHECK(tree_sums_launches(low) == 1);
}

TEST_CASE("trees refuse sections outside of the values, and other numbers of results", "[norm]") {
  ExecutionSpace const exec;
  DeviceTensor<double> const values(8, 1.0), two(2, 0.0);
  auto const sum = [&](std::vector<TreeSection> const& sections) {
    tree_sums(exec, values.vector(), sections, two.vector());
  };
  CHECK_NOTHROW(sum({{0, 4}, {4, 4}}));
  CHECK_THROWS_AS(sum({{0, 4}, {5, 4}}), Error);
  CHECK_THROWS_AS(sum({{0, 4}, {-1, 4}}), Error);
  CHECK_THROWS_AS(sum({{0, 4}}), Error);
}

TEST_CASE("the squared norm gives the same bits in every run and for any number of threads") {
  std::vector<float> const x = random_values(67 * norm_block, 1);
  double const first = norm_of(ExecutionSpace(), x);
  CHECK(norm_of(ExecutionSpace(), x) == first);
  CHECK(norm_of(smaller_instance(), x) == first);
}

TEST_CASE("the squared norm is NaN or infinite if an element is") {
  std::vector<float> x = random_values(3 * norm_block, 1);
  x[300] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(norm_of(ExecutionSpace(), x)));
  x[300] = std::numeric_limits<float>::infinity();
  CHECK(std::isinf(norm_of(ExecutionSpace(), x)));
}

TEST_CASE("the sum equals the reference") {
  for (Index const count : {0, 1, 13, 511, 513, 4099}) {
    std::vector<float> const x = random_values(count, 2, 0.0, 11.0);
    double const expected = reference::sum(widened(x));
    // positive terms, at most sqrt(512) roundings of fp32 in a block
    CHECK(std::abs(sum_of(ExecutionSpace(), x) - expected) <= 23 * roundoff * expected);
    CHECK(sum_of(smaller_instance(), x) == sum_of(ExecutionSpace(), x));
  }
}

TEMPLATE_LIST_TEST_CASE("every infinite and NaN element is counted", "", StorageTypes) {
  ExecutionSpace const exec;
  std::vector<float> values = random_values(1009, 1);
  DeviceTensor<std::int64_t> const result(1, -1);
  auto const count = [&] {
    DeviceTensor<TestType> const x(stored<TestType>(values));
    count_non_finite<TestType>(exec, x.vector(), result.vector());
    return result.values().front();
  };
  CHECK(count() == 0);
  values[0] = std::numeric_limits<float>::infinity();
  values[500] = -std::numeric_limits<float>::infinity();
  values[1008] = std::numeric_limits<float>::quiet_NaN();
  values[7] = 65504.0F; // the largest fp16
  CHECK(count() == 3);
  values.clear();
  CHECK(count() == 0);
}

TEST_CASE("the squared norm refuses a part of a block and other lengths of its scratch") {
  ExecutionSpace const exec;
  DeviceTensor<float> const x(512, 0.0F);
  DeviceTensor<double> const two(2, 0.0), one(1, 0.0);
  CHECK_NOTHROW(squared_block_sums<float>(exec, x.vector(), two.vector()));
  CHECK_THROWS_AS(squared_block_sums<float>(exec, x.vector(), one.vector()), Error);
  CHECK_THROWS_AS(squared_block_sums<float>(exec, Vector<float const>(x.vector().data(), 511), two.vector()), Error);
  CHECK_NOTHROW(tree_sum(exec, two.vector(), one.vector()));
  CHECK_THROWS_AS(tree_sum(exec, two.vector(), two.vector()), Error);
}

TEST_CASE("shares are collected in the order of their owners") {
  std::vector<double> gathered(15); // 3 shares of 5
  for (std::size_t i = 0; i < gathered.size(); ++i) gathered[i] = static_cast<double>(i);
  DeviceTensor<double> const from(gathered), to(6, -1.0), five(5, -1.0);
  collect_shares(ExecutionSpace(), from.matrix(3, 5), 2, to.vector());
  CHECK(to.values() == std::vector<double>{2, 3, 7, 8, 12, 13});
  CHECK_THROWS_AS(collect_shares(ExecutionSpace(), from.matrix(3, 5), 4, to.vector()), Error);
  CHECK_THROWS_AS(collect_shares(ExecutionSpace(), from.matrix(3, 5), 0, five.vector()), Error);
}
