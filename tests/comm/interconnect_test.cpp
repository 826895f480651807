// Contention in networks, by cases that were computed by hand, and prices of collectives on them.

#include "comm/simulation/interconnect.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/schedule/problem.hpp"
#include "comm/simulation/simulator.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <numeric>

using namespace trainstone;
using Catch::Approx;

namespace {

constexpr double rate = 10; // bytes per second of every node

Interconnect fat_tree(std::int64_t pod, double taper) {
  return {.kind = Interconnect::Kind::fat_tree, .node_bandwidth = rate, .levels = {{pod, taper}}};
}

Interconnect torus(std::vector<std::int64_t> dimensions) {
  return {.kind = Interconnect::Kind::torus, .link_bandwidth = rate, .dimensions = std::move(dimensions)};
}

/// Every node sends to the one that is so much further.
std::vector<NodeFlow> shift(std::int64_t nodes, std::int64_t by, double each = rate) {
  std::vector<NodeFlow> flows;
  for (std::int64_t node = 0; node < nodes; ++node) flows.push_back({node, (node + by) % nodes, each});
  return flows;
}

std::vector<NodeFlow> all_to_all(std::int64_t nodes) {
  std::vector<NodeFlow> flows;
  for (std::int64_t by = 1; by < nodes; ++by)
    for (NodeFlow const& flow : shift(nodes, by, rate / static_cast<double>(nodes - 1))) flows.push_back(flow);
  return flows;
}

double slowest(Interconnect const& network, std::vector<NodeFlow> const& flows) {
  return std::ranges::max(slowdowns(network, flows));
}

/// A node's ports pass `rate`, and messages start in a second.
MachineModel machine(Interconnect network) {
  MachineModel model = uniform_machine({.alpha = 1, .beta = 1 / rate, .gamma = 0.01});
  model.network = std::move(network);
  return model;
}

Problem problem(Collective collective, Rank ranks, Index elements) {
  return {collective, Partition::even(elements, ranks), Topology::block(ranks, ranks)};
}

} // namespace

TEST_CASE("a pod's switches pass what its nodes send, divided by the taper", "[interconnect]") {
  // pods of 4 of 8 nodes; to the other pod all 4 send 40, and it passes 40 / taper
  for (double const taper : {1.0, 2.0, 3.0}) {
    CHECK(slowest(fat_tree(4, taper), shift(8, 4)) == Approx(taper));
    CHECK(slowest(fat_tree(4, taper), shift(8, 2)) == Approx(std::max(1.0, taper / 2))); // two of each pod leave it
  }
  // of a ring one hop leaves each pod: 10 of the 40 / 8 that it passes
  std::vector<double> const ring = slowdowns(fat_tree(4, 8), shift(8, 1));
  CHECK(ring == std::vector<double>{1, 1, 1, 2, 1, 1, 1, 2});
  CHECK(slowest(fat_tree(4, 4), shift(8, 1)) == 1);
  CHECK(slowest(fat_tree(8, 100), shift(8, 3)) == 1); // inside one pod
}

TEST_CASE("what passes several levels is as slow as the fullest", "[interconnect]") {
  Interconnect network = fat_tree(2, 1);
  network.levels.push_back({8, 3});
  // pods of 2 in pods of 8 of 16 nodes: over the half all 8 send 80 of 80 / 3
  CHECK(slowest(network, shift(16, 8)) == Approx(3));
  CHECK(slowest(network, shift(16, 2)) == 1); // two of 8 leave the large pod: 20 of 80 / 3
  CHECK(slowest({}, shift(16, 8)) == 1);
}

TEST_CASE("neighbours on a torus do not hold each other up, pairs further apart do", "[interconnect]") {
  for (std::int64_t const by : {1, 7}) CHECK(slowest(torus({8}), shift(8, by)) == 1);
  CHECK(slowest(torus({8}), shift(8, 3)) == 3);     // each link carries three of them
  CHECK(slowest(torus({8}), shift(8, 6)) == 2);     // two hops back
  CHECK(slowest(torus({4, 4}), shift(16, 4)) == 1); // the second dimension
  // in a ring of 8, from each node 1 + 2 + 3 + 4 hops go up, over 8 links, of 10 / 7 each
  CHECK(slowest(torus({8}), all_to_all(8)) == Approx(10.0 / 7));
  CHECK(slowest(torus({4, 4, 4}), all_to_all(64)) == 1); // 4 x 4 x 3 of 10 / 63
  CHECK(interconnect_problem(torus({4, 4}), 16).empty());
  CHECK(!interconnect_problem(torus({4, 4}), 17).empty());
}

TEST_CASE("groups of a dragonfly share their links to others, and go around where a pair is full", "[interconnect]") {
  Interconnect const network{
      .kind = Interconnect::Kind::dragonfly, .groups = 5, .group_nodes = 4, .global_links = 4, .link_bandwidth = rate};
  CHECK(slowest(network, all_to_all(20)) == 1); // 4 nodes send 16 / 19 of 10 each to others: 34 of 40
  // all four nodes to the next group: 40 over one link of 10, or over two of all links of 40
  CHECK(slowest(network, shift(20, 4)) == 2);
  CHECK(slowest(network, shift(20, 1)) == 1); // one of each group leaves it
  Interconnect half = network;
  half.link_bandwidth = rate / 2;
  CHECK(slowest(half, all_to_all(20)) == Approx(4 * 10 * 16.0 / 19 / 20));
}

TEST_CASE("full bisection changes no price at all", "[interconnect]") {
  for (Rank const ranks : {4, 6, 16})
    for (Algorithm const algorithm :
         {Algorithm::ring, Algorithm::tree, Algorithm::butterfly, Algorithm::rabenseifner}) {
      Problem const all = problem(Collective::all_reduce, ranks, 48);
      double const free = price(all, algorithm, 4, machine({}));
      CHECK(price(all, algorithm, 4, machine(fat_tree(2, 1))) == free);
      CHECK(price(all, algorithm, 4, machine(fat_tree(1, 1))) == free);
    }
  // many messages in a round share the ports of their ranks
  for (Collective const collective : {Collective::all_to_all, Collective::all_gather, Collective::reduce_scatter,
                                      Collective::broadcast, Collective::gather})
    for (Algorithm const algorithm : algorithms_of(collective)) {
      Problem const all = problem(collective, 8, 64);
      if (!refusal(all, algorithm).empty()) continue;
      INFO(to_string(collective) << " " << to_string(algorithm));
      CHECK(price(all, algorithm, 4, machine(fat_tree(1, 1))) == Approx(price(all, algorithm, 4, machine({}))));
    }
}

TEST_CASE("only what crosses pods takes longer, and a collective waits for it", "[interconnect]") {
  constexpr Rank ranks = 8;
  constexpr Index elements = 800;
  Problem const all = problem(Collective::all_reduce, ranks, elements);
  double const bytes = 4.0 * elements, free = price(all, Algorithm::ring, 4, machine({}));
  // a ring crosses with one node of four: 14 rounds of an eighth each, longer by the share that the pod lacks
  CHECK(price(all, Algorithm::ring, 4, machine(fat_tree(4, 4))) == free);
  CHECK(price(all, Algorithm::ring, 4, machine(fat_tree(4, 8))) == Approx(free + 14 * bytes / 8 / rate));
  // halving and doubling crosses with all nodes once each way: partners far apart share the smallest part, an eighth
  double const halves = price(all, Algorithm::rabenseifner, 4, machine({}));
  CHECK(price(all, Algorithm::rabenseifner, 4, machine(fat_tree(4, 2))) == Approx(halves + 2 * bytes / 8 / rate));
  CHECK(price(all, Algorithm::rabenseifner, 4, machine(fat_tree(4, 1))) == halves);
}

TEST_CASE("lines that do the same at the same time share the pods", "[interconnect]") {
  // 4 rings of 2 nodes each, one in each pod of 4: all 8 nodes send to the other pod
  Problem const two = problem(Collective::all_reduce, 2, 80);
  std::vector<int> const across{0, 4, 1, 5, 2, 6, 3, 7}, inside{0, 1, 2, 3, 4, 5, 6, 7};
  MachineModel const tapered = machine(fat_tree(4, 2));
  double const free = price(two, Algorithm::ring, 4, machine({}));
  CHECK(price(two, Algorithm::ring, 4, tapered) == free); // alone
  CHECK(price(two, Algorithm::ring, 4, tapered, inside) == free);
  CHECK(price(two, Algorithm::ring, 4, tapered, across) == Approx(free + 2 * 4.0 * 40 / rate)); // two rounds of 40
}

TEST_CASE("65,536 ranks on a tapered tree are priced by the classes of their ranks", "[interconnect]") {
  constexpr Rank ranks = 65536, nodes = ranks / 8;
  Problem const all{Collective::all_reduce, Partition::even(ranks, ranks), Topology::block(ranks, nodes)};
  Interconnect network{.kind = Interconnect::Kind::fat_tree, .node_bandwidth = 8 * rate, .levels = {{32, 1}, {512, 4}}};
  double const free = price(all, Algorithm::rabenseifner, 4, machine({}));
  double const tapered = price(all, Algorithm::rabenseifner, 4, machine(network));
  // rounds at a distance of 4096 ranks and more, both ways: of 8, 4, 2 elements and 1
  double const longer = 2 * (4 - 1) * 4.0 * (8 + 4 + 2 + 1) / rate;
  CHECK(tapered == Approx(free + longer).epsilon(1e-9));
}
