// The closed forms of the hierarchical all-reduce on q nodes of k ranks: reduce-scatter and all-gather inside nodes,
// all-reduces of S/k elements across, of optimal volume and rounds whatever q. Inside by messages or by shared memory.

#include "comm/algorithms/closed_forms.hpp"

#include <algorithm>

using namespace trainstone;
using namespace trainstone::test;

namespace {

Problem problem_of(Index elements, Topology const& topology, bool shared_memory = false) {
  return {.collective = Collective::all_reduce,
          .partition = Partition::even(elements, topology.ranks()),
          .topology = topology,
          .shared_memory = shared_memory};
}

std::vector<Topology> uneven_topologies() {
  return {Topology::block(7, 2),           Topology::block(13, 4),          Topology::cyclic(7, 3),
          Topology::cyclic(11, 4),         Topology({0, 1, 1, 1, 1}),       Topology({2, 0, 1, 1, 0, 2, 2, 2, 1}),
          Topology({1, 0, 1, 1, 0, 0, 1}), Topology({0, 1, 2, 3, 4, 4, 4}), Topology({3, 2, 1, 0})};
}

} // namespace

TEST_CASE("hierarchical on k x q ranks sends 2S(k-1)/k inside and 2(S/k)(q-1)/q across", "[comm][algorithms]") {
  for (Rank const k : {1, 2, 3, 4, 7, 8}) {
    for (Rank const q : {1, 2, 3, 4, 5, 8, 12}) {
      for (Topology const& topology : {Topology::block(k * q, q), Topology::cyclic(k * q, q)}) {
        INFO(q << " nodes of " << k);
        Index const s = Index{6} * k * q;
        Index const inside = 2 * (k - 1);
        Index const across = 2 * ceil_lg(q);
        CollectiveCounts const counts = counted(problem_of(s, topology), Algorithm::hierarchical);
        Index const sent_inside = 2 * s / k * (k - 1);
        Index const sent_across = 2 * (s / k) / q * (q - 1);
        Traffic const expected{.messages = static_cast<std::uint64_t>(inside + across),
                               .bytes = in_bytes(sent_inside + sent_across),
                               .reduced = static_cast<std::uint64_t>((sent_inside + sent_across) / 2),
                               .inter_messages = static_cast<std::uint64_t>(across),
                               .inter_bytes = in_bytes(sent_across)};
        CHECK(counts.rounds == inside + across);
        CHECK(counts.barriers == 0);
        CHECK(counts.busiest == expected);
        CHECK(counts.total == static_cast<std::uint64_t>(k * q) * expected);
        CHECK(defect_of(problem_of(s, topology), Algorithm::hierarchical) == "");
      }
    }
  }
}

TEST_CASE("hierarchical in shared memory sends across nodes only, and reads and writes (3k-1)S per node",
          "[comm][algorithms]") {
  for (Rank const k : {1, 2, 3, 4, 7, 8}) {
    for (Rank const q : {1, 2, 3, 4, 5, 8}) {
      INFO(q << " nodes of " << k);
      Topology const topology = Topology::block(k * q, q);
      Index const s = Index{6} * k * q;
      Problem const problem = problem_of(s, topology, true);
      CollectiveCounts const counts = counted(problem, Algorithm::hierarchical);
      Index const sent_across = 2 * (s / k) / q * (q - 1);
      CHECK(counts.rounds == 2 * ceil_lg(q));
      CHECK(counts.barriers == (k > 1 ? 3 : 0));
      CHECK(counts.busiest.bytes == in_bytes(sent_across));
      CHECK(counts.busiest.inter_bytes == counts.busiest.bytes);
      CHECK(counts.total.inter_bytes == counts.total.bytes);
      CHECK(counts.busiest.reduced == static_cast<std::uint64_t>(s / k * (k - 1) + sent_across / 2));
      CHECK(counts.total.shared_bytes == (k > 1 ? in_bytes(q * (3 * k - 1) * s) : 0));
      CHECK(defect_of(problem, Algorithm::hierarchical) == "");
    }
  }
}

TEST_CASE("hierarchical is right on nodes of any size, by messages and in shared memory", "[comm][algorithms]") {
  for (Topology const& topology : uneven_topologies()) {
    for (Index const elements : {0, 1, 2, 3, 17, 1009}) {
      for (bool const shared_memory : {false, true}) {
        INFO(elements << " elements on " << topology.ranks() << " ranks, " << topology.nodes() << " nodes"
                      << (shared_memory ? ", shared memory" : ""));
        CHECK(defect_of(problem_of(elements, topology, shared_memory), Algorithm::hierarchical) == "");
      }
    }
  }
}

TEST_CASE("hierarchical crosses node borders with 2(q-1)S in all, whatever the nodes' sizes", "[comm][algorithms]") {
  for (Topology const& topology : uneven_topologies()) {
    for (Index const elements : {0, 1, 17, 1009}) {
      for (bool const shared_memory : {false, true}) {
        INFO(elements << " elements on " << topology.ranks() << " ranks, " << topology.nodes() << " nodes");
        CollectiveCounts const counts = counted(problem_of(elements, topology, shared_memory), Algorithm::hierarchical);
        CHECK(counts.total.inter_bytes == in_bytes(2 * (topology.nodes() - 1) * elements));
        CHECK((counts.total.shared_bytes == 0 || shared_memory));
      }
    }
  }
}

TEST_CASE("hierarchical copies nothing in memory if the nodes are a power of two", "[comm][algorithms]") {
  for (int const nodes : {1, 2, 4, 8}) {
    for (Schedule const& schedule :
         make_schedules(problem_of(1009, Topology::block(3 * nodes, nodes)), Algorithm::hierarchical)) {
      for (Round const& round : schedule.rounds) CHECK(std::ranges::count(round, Action::copy, &Move::action) == 0);
    }
  }
}

TEST_CASE("all ranks of a hierarchical all-reduce have the same sum", "[comm][algorithms]") {
  for (Topology const& topology : uneven_topologies()) {
    for (bool const shared_memory : {false, true}) {
      Problem const problem = problem_of(19, topology, shared_memory);
      auto const schedules = make_schedules(problem, Algorithm::hierarchical);
      for (Index element = 0; element < 19; element += 3) {
        INFO(topology.ranks() << " ranks, " << topology.nodes() << " nodes, element " << element);
        CHECK(common_tree(problem, schedules, element) ==
              without_order(reduction_tree(problem, schedules, 0, element)));
      }
    }
  }
}

TEST_CASE("hierarchical in shared memory adds in the balanced tree of the node's ranks", "[comm][algorithms]") {
  for (Rank const k : {1, 2, 3, 5, 8}) {
    INFO(k << " ranks");
    CHECK(common_tree(problem_of(11, Topology::one_node(k), true), Algorithm::hierarchical, 10) ==
          without_order(balanced_tree(k)));
  }
  Problem const two_nodes = problem_of(6, Topology::block(6, 2), true);
  CHECK(common_tree(two_nodes, Algorithm::hierarchical, 5) == "(((0+1)+2)+((3+4)+5))");
}
