#include "comm/measurement/calibration_probes.hpp"

#include "comm/schedule/counters.hpp"
#include "comm/simulation/simulator.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace trainstone;

namespace {

std::vector<Topology> topologies() {
  return {Topology::one_node(1),  Topology::one_node(2), Topology::one_node(3), Topology::one_node(8),
          Topology::block(2, 2),  Topology::block(4, 2), Topology::block(5, 2), Topology::block(7, 3),
          Topology::cyclic(6, 2), Topology::block(3, 3)};
}

std::vector<Schedule> all_ranks(Probe probe, Topology const& topology, Index elements) {
  std::vector<Schedule> schedules;
  for (Rank rank = 0; rank < topology.ranks(); ++rank) schedules.push_back(make_probe(probe, topology, rank, elements));
  return schedules;
}

Problem problem_of(std::vector<Schedule> const& schedules, Topology const& topology) {
  return {.collective = Collective::all_reduce,
          .partition = Partition::even(schedules.front().elements, topology.ranks()),
          .topology = topology,
          .shared_memory = true};
}

} // namespace

TEST_CASE("partners are mutual, on the right side of the node border, and nobody is left out without need",
          "[calibration]") {
  for (Topology const& topology : topologies()) {
    for (Link const link : {Link::intra, Link::inter}) {
      for (Rank rank = 0; rank < topology.ranks(); ++rank) {
        std::optional<Rank> const peer = partner(topology, rank, link);
        if (!peer) continue;
        CHECK(*peer != rank);
        CHECK(topology.link(rank, *peer) == link);
        CHECK(partner(topology, *peer, link) == rank);
      }
    }
  }
  CHECK(partner(Topology::one_node(3), 2, Link::intra) == std::nullopt);
  CHECK(partner(Topology::block(5, 2), 2, Link::inter) == std::nullopt); // the other node has two ranks only
}

TEST_CASE("a probe ends, and its price is that of what it measures", "[calibration]") {
  MachineModel machine;
  machine.of(Link::intra) = PiecewiseLinear(1, 0.25);
  machine.of(Link::inter) = PiecewiseLinear(3, 0.5);
  machine.one_way = {PiecewiseLinear(0.5, 0.125), PiecewiseLinear(2, 0.25)};
  machine.overlap = {0.5, 0};
  machine.reduce = PiecewiseLinear(0, 2);
  machine.copy = PiecewiseLinear(0, 4);
  machine.combine_to_own = PiecewiseLinear(0, 8);
  machine.combine_to_all = PiecewiseLinear(0, 64);
  machine.fetch = PiecewiseLinear(0, 16);
  machine.push = PiecewiseLinear(0, 128);
  machine.node_barrier = 32;
  Index const elements = 24; // a multiple of 1, 2, 3 and 8
  for (Topology const& topology : topologies()) {
    for (Probe const probe : probes) {
      if (!is_possible(probe, topology, true)) continue;
      auto const schedules = all_ranks(probe, topology, elements);
      double const seconds = price(problem_of(schedules, topology), schedules, sizeof(float), machine);
      double const bytes = priced_bytes(probe, topology, elements, sizeof(float));
      bool const any_pair = partner(topology, 0, Link::intra).has_value();
      double expected = 0;
      switch (probe) {
      case Probe::exchange_intra: expected = machine.of(Link::intra)(bytes); break;
      case Probe::exchange_inter:
      case Probe::exchange_inter_alone: expected = machine.of(Link::inter)(bytes); break;
      case Probe::one_way_intra: expected = machine.one_way[0](bytes); break;
      case Probe::one_way_inter:
      case Probe::one_way_inter_alone: expected = machine.one_way[1](bytes); break;
      case Probe::overlap_intra: // half of the reduction is hidden
        expected = std::max(machine.of(Link::intra)(bytes), machine.reduce(bytes) / 2) + machine.reduce(bytes) / 2;
        break;
      case Probe::overlap_inter: expected = machine.of(Link::inter)(bytes) + machine.reduce(bytes); break;
      case Probe::exchange_reduce:
        expected = machine.of(any_pair ? Link::intra : Link::inter)(bytes) + machine.reduce(bytes);
        break;
      case Probe::reduce: expected = machine.reduce(bytes); break;
      case Probe::copy: expected = machine.copy(bytes); break;
      case Probe::node_barrier: expected = machine.node_barrier; break;
      case Probe::combine_to_own: expected = machine.combine_to_own(bytes); break;
      case Probe::combine_to_all: expected = machine.combine_to_all(bytes); break;
      case Probe::fetch: expected = machine.fetch(bytes); break;
      case Probe::push: expected = machine.push(bytes); break;
      }
      INFO(to_string(probe) << ", " << topology.ranks() << " ranks on " << topology.nodes() << " nodes");
      double const extra = machine.node_barrier * extra_barriers(probe);
      CHECK(seconds == expected * repetitions(probe) + extra);
    }
  }
}

TEST_CASE("a pair is alone where nodes have several, and nobody else sends", "[calibration]") {
  CHECK(most_pairs_of_nodes(Topology::one_node(4)) == 0);
  CHECK(most_pairs_of_nodes(Topology::block(5, 2)) == 2);
  CHECK_FALSE(is_possible(Probe::exchange_inter_alone, Topology::block(3, 3), true));
  Topology const topology = Topology::block(8, 4);
  for (Schedule const& schedule : all_ranks(Probe::exchange_inter_alone, topology, 3))
    CHECK(schedule.rounds.empty() == (schedule.rank % 2 == 1));
}

TEST_CASE("what cannot be measured is said", "[calibration]") {
  CHECK_FALSE(is_possible(Probe::exchange_intra, Topology::one_node(1), true));
  CHECK(is_possible(Probe::copy, Topology::one_node(1), true));
  CHECK_FALSE(is_possible(Probe::exchange_inter, Topology::one_node(4), true));
  CHECK_FALSE(is_possible(Probe::exchange_intra, Topology::block(3, 3), true));
  CHECK_FALSE(is_possible(Probe::combine_to_all, Topology::block(3, 3), true));
  CHECK_FALSE(is_possible(Probe::combine_to_all, Topology::one_node(4), false));
  CHECK(is_possible(Probe::exchange_reduce, Topology::block(3, 3), true));
}

TEST_CASE("the smallest probes of many neighbours have a slice for each", "[calibration]") {
  Topology const topology = Topology::one_node(8);
  for (Schedule const& schedule : all_ranks(Probe::combine_to_all, topology, 2)) {
    CHECK(schedule.elements == 8);
    CHECK(schedule.rounds.size() == 3);
  }
  CHECK(priced_bytes(Probe::combine_to_all, topology, 2, 4) == 8 * 2 * 4);
}
