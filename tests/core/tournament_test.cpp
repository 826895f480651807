// The smallest of values that change one at a time.

#include "core/tournament.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

using namespace trainstone;

TEST_CASE("a tournament knows the first of the smallest values whatever changes", "[core]") {
  for (std::size_t const count : {1, 2, 3, 5, 8, 13, 64, 100}) {
    Tournament<int> tournament(count, 1000);
    std::vector<int> values(count, 1000);
    std::uint32_t random = 1;
    for (int change = 0; change < 500; ++change) {
      random = 1664525 * random + 1013904223;
      std::size_t const number = random / 65536 % count;
      values[number] = static_cast<int>(random / 256 % 20); // many are equal
      tournament.set(number, values[number]);
      auto const smallest = std::ranges::min_element(values);
      REQUIRE(tournament.first() == static_cast<std::size_t>(smallest - values.begin()));
      REQUIRE(tournament.smallest() == *smallest);
    }
  }
}
