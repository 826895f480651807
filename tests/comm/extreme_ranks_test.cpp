// That few ranks stand for all: on any number of ranks and nodes, every algorithm has its busiest rank and the one with
// most scratch among them.

#include "comm/schedule/extreme_ranks.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/schedule/counters.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace trainstone;

namespace {

struct Most {
  std::uint64_t bytes = 0, messages = 0, scratch = 0;
  bool operator==(Most const&) const = default;
};

Most most_of(Problem const& problem, Algorithm algorithm, std::vector<Rank> const& ranks) {
  Most most;
  for (Rank const rank : ranks) {
    Schedule const schedule = make_schedule(problem, algorithm, rank);
    Traffic const traffic = predict_traffic(schedule, problem.topology, 1);
    most.bytes = std::max(most.bytes, traffic.bytes);
    most.messages = std::max(most.messages, traffic.messages);
    most.scratch = std::max(most.scratch, static_cast<std::uint64_t>(schedule.scratch_elements));
  }
  return most;
}

void check_all_algorithms(Topology const& topology, Index elements) {
  std::vector<Rank> all(static_cast<std::size_t>(topology.ranks()));
  for (Rank rank = 0; rank < topology.ranks(); ++rank) all[static_cast<std::size_t>(rank)] = rank;
  for (Collective const collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
    for (Algorithm const algorithm : unlimited_algorithms_of(collective)) {
      Problem const problem{.collective = collective,
                            .partition = Partition::even(elements, topology.ranks()),
                            .topology = topology,
                            .shared_memory = find_algorithm(collective, algorithm).uses_shared_memory()};
      if (!refusal(problem, algorithm).empty()) continue;
      INFO(to_string(collective) << " " << to_string(algorithm) << " of " << elements << " elements on "
                                 << topology.ranks() << " ranks, " << topology.nodes() << " nodes");
      CHECK(most_of(problem, algorithm, extreme_ranks(topology)) == most_of(problem, algorithm, all));
    }
  }
}

} // namespace

TEST_CASE("few ranks have among them the one that sends most and the one that needs most scratch", "[comm][extremes]") {
  for (Rank ranks : {1, 2, 3, 5, 8, 12, 16, 17, 21, 24, 31, 32, 33, 40, 48, 57, 63, 64, 65})
    for (int nodes : {1, 2, 3, 7})
      if (nodes <= ranks) check_all_algorithms(Topology::block(ranks, nodes), 256 * ranks);
}

TEST_CASE("few ranks stay few", "[comm][extremes]") {
  CHECK(extreme_ranks(Topology::one_node(1)) == std::vector<Rank>{0});
  CHECK(extreme_ranks(Topology::one_node(4)) == std::vector<Rank>{0, 1, 2, 3});
  CHECK(extreme_ranks(Topology::one_node(4096)).size() < 30);
  CHECK(extreme_ranks(Topology::block(65536, 8192)).size() < 250);
}
