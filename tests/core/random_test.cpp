#include "core/random.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <set>
#include <vector>

using namespace trainstone;

namespace {

/// The raw generator, as Random123's list of known answers calls it.
std::vector<std::uint32_t> philox(r123::Philox4x32::ctr_type const& counter, r123::Philox4x32::key_type const& key) {
  r123::Philox4x32::ctr_type const result = r123::Philox4x32()(counter, key);
  return {result.begin(), result.end()};
}

} // namespace

TEST_CASE("Philox gives Random123's known answers") { // its kat_vectors, philox4x32 with 10 rounds
  using Words = std::vector<std::uint32_t>;
  CHECK(philox({{0, 0, 0, 0}}, {{0, 0}}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  std::uint32_t const ones = 0xffffffff;
  CHECK(philox({{ones, ones, ones, ones}}, {{ones, ones}}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {{0xa4093822, 0x299f31d0}}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a block is Philox of (index, stream) under the seed") {
  RandomBlock const block = random_block(0x299f31d0a4093822u, RandomStream::data_order, 0x85a308d3243f6a88u);
  std::vector<std::uint32_t> const expected = philox({{0x243f6a88, 0x85a308d3, 2, 0}}, {{0xa4093822, 0x299f31d0}});
  CHECK(std::vector<std::uint32_t>(block.words, block.words + 4) == expected);
}

TEST_CASE("the values of streams never change") { // they define every golden curve
  CHECK(static_cast<int>(RandomStream::initial_values) == 1);
  CHECK(static_cast<int>(RandomStream::data_order) == 2);
  CHECK(static_cast<int>(RandomStream::synthetic_data) == 3);
}

TEST_CASE("blocks differ between seeds, streams and indices") {
  std::set<std::uint32_t> words;
  for (std::uint64_t const seed : {0ull, 1ull, 1ull << 32})
    for (RandomStream const stream : {RandomStream::initial_values, RandomStream::data_order})
      for (std::uint64_t const index : {0ull, 1ull, 1ull << 32})
        words.insert(random_block(seed, stream, index).words[0]);
  CHECK(words.size() == 3 * 2 * 3);
}

TEST_CASE("uniform numbers are above 0 and at most 1") {
  CHECK(uniform(0) == 0x1p-32);
  CHECK(uniform(0xffffffff) == 1.0);
  CHECK(uniform(0x7fffffff) == 0.5);
}

TEST_CASE("normal numbers have mean 0, variance 1 and the tails of a normal distribution") {
  int const count = 200'003;
  double sum = 0, squares = 0, fourth = 0;
  int beyond_two = 0;
  for (int i = 0; i < count; ++i) {
    double const x = normal(7, RandomStream::tests, static_cast<std::uint64_t>(i));
    REQUIRE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    beyond_two += std::abs(x) > 2;
  }
  // five standard errors each: of the mean 1 / sqrt(n), the variance sqrt(2 / n), the fourth moment sqrt(96 / n), and
  // of a share of 0.0455
  double const n = count;
  CHECK(std::abs(sum / n) < 5 / std::sqrt(n));
  CHECK(std::abs(squares / n - 1) < 5 * std::sqrt(2 / n));
  CHECK(std::abs(fourth / n - 3) < 5 * std::sqrt(96 / n));
  CHECK(std::abs(beyond_two / n - 0.0455) < 5 * std::sqrt(0.0455 / n));
}
