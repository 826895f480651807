#include "comm/schedule/partition.hpp"
#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;

TEST_CASE("an even partition covers all elements with blocks that differ by at most one", "[comm][partition]") {
  for (Index const elements : {0, 1, 2, 3, 7, 16, 17, 1009}) {
    for (Rank ranks = 1; ranks <= 17; ++ranks) {
      Partition const partition = Partition::even(elements, ranks);
      INFO(elements << " elements on " << ranks << " ranks");
      REQUIRE(partition.ranks() == ranks);
      REQUIRE(partition.elements() == elements);
      Index end = 0;
      for (Rank block = 0; block < ranks; ++block) {
        Range const range = partition.range(block);
        CHECK(range.begin == end);
        CHECK(range.size() >= elements / ranks);
        CHECK(range.size() <= elements / ranks + 1);
        end = range.end;
      }
      CHECK(end == elements);
      CHECK(partition.largest() == (elements + ranks - 1) / ranks);
    }
  }
}

TEST_CASE("a partition of given sizes keeps them, zero lengths too", "[comm][partition]") {
  Partition const partition = Partition::of_sizes({0, 5, 0, 2, 0});
  CHECK(partition.offsets() == std::vector<Index>{0, 0, 5, 5, 7, 7});
  CHECK(partition.range(1) == Range{0, 5});
  CHECK(partition.range(2).empty());
  CHECK(partition.largest() == 5);
  CHECK(Partition::of_sizes({0}).elements() == 0);
}

TEST_CASE("a part of a buffer is cut like a whole one", "[comm][partition]") {
  Partition const partition = Partition::even(Range{5, 16}, 4);
  CHECK(partition.offsets() == std::vector<Index>{5, 8, 11, 14, 16});
  CHECK(partition.elements() == 11);
  CHECK(partition.size(3) == 2);
  CHECK(Partition::even(Range{5, 5}, 3).offsets() == std::vector<Index>{5, 5, 5, 5});
}

TEST_CASE("several blocks are one range", "[comm][partition]") {
  Partition const partition = Partition::of_sizes({2, 0, 3, 4});
  CHECK(partition.range(1, 3) == Range{2, 5});
  CHECK(partition.range(0, 4) == Range{0, 9});
  CHECK(partition.range(2, 2).empty());
  CHECK(partition == Partition::of_offsets({0, 2, 2, 5, 9}));
  CHECK_THROWS_AS(partition.range(3, 2), Error);
  CHECK_THROWS_AS(partition.range(-1, 2), Error);
  CHECK_THROWS_AS(partition.range(2, 5), Error);
}

TEST_CASE("a partition does not exist on zero ranks or with negative sizes", "[comm][partition]") {
  CHECK_THROWS_AS(Partition::even(5, 0), Error);
  CHECK_THROWS_AS(Partition::even(-1, 2), Error);
  CHECK_THROWS_AS(Partition::of_sizes({}), Error);
  CHECK_THROWS_AS(Partition::of_sizes({3, -1}), Error);
  CHECK_THROWS_AS(Partition::even(5, 2).range(2), Error);
  CHECK_THROWS_AS(Partition::of_offsets({0}), Error);
  CHECK_THROWS_AS(Partition::of_offsets({0, 3, 2}), Error);
  CHECK_THROWS_AS(Partition::even(Range{3, 2}, 1), Error);
}

TEST_CASE("ranges that only touch do not overlap", "[comm][partition]") {
  CHECK_FALSE(Range{0, 3}.overlaps({3, 5}));
  CHECK(Range{0, 3}.overlaps({2, 5}));
  CHECK_FALSE(Range{2, 2}.overlaps({2, 2}));
}
