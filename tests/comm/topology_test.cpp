#include "comm/schedule/topology.hpp"
#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace trainstone;

TEST_CASE("ranks in blocks fill nodes whose sizes differ by at most one", "[comm][topology]") {
  for (Rank ranks = 1; ranks <= 17; ++ranks) {
    for (int nodes = 1; nodes <= ranks; ++nodes) {
      Topology const topology = Topology::block(ranks, nodes);
      INFO(ranks << " ranks on " << nodes << " nodes");
      REQUIRE(topology.ranks() == ranks);
      REQUIRE(topology.nodes() == nodes);
      for (int node = 0; node < nodes; ++node) {
        std::vector<Rank> const& members = topology.members(node);
        CHECK(std::ssize(members) >= ranks / nodes);
        CHECK(std::ssize(members) <= (ranks + nodes - 1) / nodes);
        CHECK(members.back() - members.front() == std::ssize(members) - 1);
      }
      for (Rank rank = 1; rank < ranks; ++rank) CHECK(topology.node_of(rank) >= topology.node_of(rank - 1));
    }
  }
}

TEST_CASE("cyclic placement deals ranks out to the nodes", "[comm][topology]") {
  Topology const topology = Topology::cyclic(7, 3);
  CHECK(topology.members(0) == std::vector<Rank>{0, 3, 6});
  CHECK(topology.members(1) == std::vector<Rank>{1, 4});
  CHECK(topology.neighbours(5) == std::vector<Rank>{2, 5});
  CHECK(topology.link(0, 6) == Link::intra);
  CHECK(topology.link(0, 1) == Link::inter);
  CHECK(topology.link(4, 4) == Link::intra);
}

TEST_CASE("the ring goes through all ranks and crosses each node border once", "[comm][topology]") {
  for (Topology const& topology : {Topology::one_node(1), Topology::one_node(5), Topology::block(13, 4),
                                   Topology::cyclic(13, 4), Topology({1, 1, 0, 2, 0, 1}), Topology::block(3, 3)}) {
    std::vector<Rank> const& ring = topology.ring();
    std::vector<Rank> sorted = ring;
    std::ranges::sort(sorted);
    int crossings = 0;
    for (Rank rank = 0; rank < topology.ranks(); ++rank) {
      auto const place = static_cast<std::size_t>(topology.ring_position(rank));
      CHECK(sorted[static_cast<std::size_t>(rank)] == rank);
      CHECK(ring[place] == rank);
      crossings += topology.link(rank, ring[(place + 1) % ring.size()]) == Link::inter ? 1 : 0;
    }
    CHECK(crossings == (topology.nodes() == 1 ? 0 : topology.nodes()));
  }
}

TEST_CASE("placements that cannot be are refused", "[comm][topology]") {
  CHECK_THROWS_AS(Topology::one_node(0), Error);
  CHECK_THROWS_AS(Topology::block(3, 4), Error);
  CHECK_THROWS_AS(Topology::block(3, 0), Error);
  CHECK_THROWS_AS(Topology::cyclic(3, 4), Error);
  CHECK_THROWS_AS(Topology({}), Error);
  CHECK_THROWS_AS(Topology({0, 2}), Error); // nobody on node 1
  CHECK_THROWS_AS(Topology({0, -1}), Error);
}

TEST_CASE("placements are equal if all ranks sit on the same nodes", "[comm][topology]") {
  CHECK(Topology::block(4, 2) == Topology({0, 0, 1, 1}));
  CHECK_FALSE(Topology::block(4, 2) == Topology::cyclic(4, 2));
}
