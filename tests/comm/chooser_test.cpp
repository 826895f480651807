#include "comm/simulation/chooser.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/measurement/measured_choice.hpp"
#include "comm/schedule/config.hpp"
#include "comm/simulation/simulator.hpp"
#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>
#include <set>
#include <string>
#include <utility>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

constexpr std::size_t element = 4;

Problem all_reduce(Index elements, Rank ranks) {
  return Problem::on_one_node(Collective::all_reduce, Partition::even(elements, ranks));
}

std::vector<Algorithm> names(std::vector<PricedAlgorithm> const& ranked) {
  std::vector<Algorithm> algorithms;
  for (PricedAlgorithm const& one : ranked) algorithms.push_back(one.algorithm);
  return algorithms;
}

} // namespace

TEST_CASE("the choice is the least price of all algorithms that do not refuse", "[chooser]") {
  for (Rank const ranks : {1, 2, 3, 5, 8, 13}) {
    for (Index const elements : {Index{0}, Index{1}, Index{97}, Index{300007}}) {
      for (Collective const collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::broadcast}) {
        Problem problem = Problem::on_one_node(collective, Partition::even(elements, ranks));
        problem.segment = 1009;
        INFO(to_string(collective) << " of " << elements << " on " << ranks);
        std::vector<PricedAlgorithm> const ranked = rank_algorithms(problem, element, default_machine());
        CHECK(std::ranges::is_sorted(ranked, {}, &PricedAlgorithm::seconds));
        CHECK(choose_algorithm(problem, element, default_machine()) == ranked.front());
        std::vector<Algorithm> const found = names(ranked);
        for (Algorithm const algorithm : algorithms_of(collective)) {
          bool const listed = std::ranges::find(found, algorithm) != found.end();
          CHECK(listed == refusal(problem, algorithm).empty());
          if (listed) CHECK(ranked.front().seconds <= price(problem, algorithm, element, default_machine()));
        }
      }
    }
  }
}

TEST_CASE("shared memory is chosen from only where the buffers lie in it", "[chooser]") {
  Problem problem = all_reduce(1 << 16, 4);
  auto const uses_shared = [&] {
    return std::ranges::any_of(names(rank_algorithms(problem, element, default_machine())), [&](Algorithm algorithm) {
      return find_algorithm(Collective::all_reduce, algorithm).needs == MemoryNeed::shared_memory;
    });
  };
  bool const there_are = std::ranges::any_of(registered_algorithms(), [](RegisteredAlgorithm const& line) {
    return line.collective == Collective::all_reduce && line.needs == MemoryNeed::shared_memory;
  });
  CHECK(!uses_shared());
  problem.shared_memory = true;
  CHECK(uses_shared() == there_are);
  problem.topology = Topology::block(4, 2);
  CHECK(!uses_shared());
}

TEST_CASE("close candidates are all that are predicted to take a few times the least time", "[chooser]") {
  for (Rank const ranks : {5, 8, 13}) {
    for (Index const elements : {Index{97}, Index{300007}}) {
      Problem const problem = all_reduce(elements, ranks);
      std::vector<PricedAlgorithm> const all = rank_algorithms(problem, element, default_machine());
      std::vector<PricedAlgorithm> const close = close_candidates(problem, element, default_machine());
      CHECK(close.size() < all.size()); // the naive ways of lectures are far
      CHECK(std::ranges::equal(close, all | std::views::take(close.size())));
      CHECK(close.back().seconds <= 4 * all.front().seconds);
      CHECK(all[close.size()].seconds > 4 * all.front().seconds);
    }
  }
}

TEST_CASE("close candidates are looked for among those that are asked for, as far as is asked for", "[chooser]") {
  Problem const problem = all_reduce(300007, 13);
  std::array const asked{Algorithm::tree, Algorithm::naive, Algorithm::ring};
  std::vector<PricedAlgorithm> const all = rank_algorithms(problem, element, default_machine(), asked);
  double const ratio = all.back().seconds / all.front().seconds;
  CHECK(close_candidates(problem, element, default_machine(), 1.01 * ratio, asked) == all);
  CHECK(close_candidates(problem, element, default_machine(), 0.99 * ratio, asked).size() < all.size());
  CHECK(close_candidates(problem, element, default_machine(), 1, asked).size() == 1);
}

TEST_CASE("every key of an algorithm has a name, a collective of some ranks and a value of its own", "[chooser]") {
  CommConfig all;
  std::set<std::string> names;
  std::set<std::pair<Collective, bool>> collectives; // between tensor ranks or others
  for (AlgorithmKey const& key : algorithm_keys) {
    CHECK(all.*key.member == "auto"); // nobody else's
    all = with_algorithm(all, key.name, key.name);
    CHECK(all.*key.member == key.name);
    CHECK_FALSE(unlimited_algorithms_of(key.collective).empty());
    names.insert(key.name);
    collectives.emplace(key.collective, key.of_tensor_ranks);
  }
  CHECK(names.size() == algorithm_keys.size());
  CHECK(collectives.size() == algorithm_keys.size());
  for (Algorithm const algorithm : algorithms) CHECK(names_algorithm(to_string(algorithm)));
  CHECK_FALSE(names_algorithm("auto"));
  CHECK_FALSE(names_algorithm(algorithm_measured));
}

TEST_CASE("ties go to the earlier line of the table", "[chooser]") {
  MachineModel const free; // nothing takes any time: all are equal
  std::vector<PricedAlgorithm> const ranked = rank_algorithms(all_reduce(1 << 10, 4), element, free);
  std::vector<Algorithm> expected;
  for (Algorithm const algorithm : algorithms_of(Collective::all_reduce))
    if (refusal(all_reduce(1 << 10, 4), algorithm).empty()) expected.push_back(algorithm);
  CHECK(names(ranked) == expected);
}

TEST_CASE("start-up cost decides small messages, volume large ones", "[chooser]") {
  MachineModel const machine = uniform_machine({1e-6, 1e-10, 1e-10});
  std::array const pair{Algorithm::ring, Algorithm::butterfly};
  CHECK(choose_algorithm(all_reduce(2, 16), element, machine, pair).algorithm == Algorithm::butterfly);
  CHECK(choose_algorithm(all_reduce(1 << 22, 16), element, machine, pair).algorithm == Algorithm::ring);
}

TEST_CASE("a few elements on many ranks are priced as such, not as one for every rank", "[chooser]") {
  Problem problem = all_reduce(2, 1024);
  problem.topology = Topology::block(1024, 128);
  // 3 rounds inside a node and 7 between nodes, each with a reduction; 8 bytes take less than 1 ns
  CHECK(price(problem, Algorithm::butterfly, element, default_machine()) < 3 * 1e-6 + 7 * 2e-6 + 10 * 1e-7 + 1e-7);
  for (Algorithm const algorithm : {Algorithm::butterfly, Algorithm::rabenseifner}) {
    double const in_full = price(problem, make_schedules(problem, algorithm), element, default_machine());
    INFO(to_string(algorithm));
    CHECK(std::abs(price(problem, algorithm, element, default_machine()) / in_full - 1) < 0.01);
  }
}

TEST_CASE("a slow network makes algorithms win that cross node borders less", "[chooser]") {
  MachineModel machine = uniform_machine({1e-6, 1e-10, 1e-10});
  machine.set_messages(Link::inter, PiecewiseLinear(1e-6, 1e-8));
  Problem problem = all_reduce(1 << 20, 16);
  problem.topology = Topology::block(16, 2);
  std::array const pair{Algorithm::butterfly, Algorithm::hierarchical};
  CHECK(choose_algorithm(problem, element, machine, pair).algorithm == Algorithm::hierarchical);
}

TEST_CASE("the assumed machine is slower between nodes than inside, at every size", "[chooser]") {
  MachineModel const machine = default_machine();
  for (double bytes = 1; bytes < 1e10; bytes *= 4) {
    INFO(bytes << " bytes");
    CHECK(machine.of(Link::inter)(bytes) > machine.of(Link::intra)(bytes));
  }
  // 8 ranks that send at a time fill a port of 25 GB/s
  CHECK(std::abs(machine.of(Link::inter)(1e9) - (2e-6 + 8e9 / 25e9)) < 1e-12);
}

TEST_CASE("on the assumed machine rings lose that cross node borders with all their data", "[chooser]") {
  Problem problem = all_reduce(1 << 24, 16); // 64 MiB
  problem.topology = Topology::block(16, 2);
  auto const seconds = [&](Algorithm algorithm) { return price(problem, algorithm, element, default_machine()); };
  // inside 14/8 S at 10 GB/s and between nodes 1/8 S at 3.125 GB/s, against 15/8 S at 3.125 GB/s
  CHECK(seconds(Algorithm::hierarchical) < seconds(Algorithm::ring) / 2);
}

TEST_CASE("segmented algorithms are tried with several segments, others have none", "[chooser]") {
  Problem problem = all_reduce(1 << 20, 4);
  std::vector<PricedAlgorithm> const ranked = rank_algorithms(problem, element, default_machine());
  for (PricedAlgorithm const& one : ranked) {
    INFO(to_string(one));
    CHECK((one.segment > 0) == is_segmented(one.algorithm));
    if (!is_segmented(one.algorithm)) continue;
    CHECK(std::ranges::find(tried_segments, one.segment) != tried_segments.end());
    for (Index const segment : tried_segments) {
      problem.segment = segment;
      CHECK(one.seconds <= price(problem, one.algorithm, element, default_machine()));
    }
    problem.segment = 1021;
    PricedAlgorithm const given = choose_algorithm(problem, element, default_machine(), {&one.algorithm, 1});
    CHECK(given.segment == 1021);
    CHECK(given.seconds == price(problem, one.algorithm, element, default_machine()));
    problem.segment = 0;
  }
}

TEST_CASE("segments change the price of exactly the algorithms that are said to be segmented", "[chooser]") {
  for (RegisteredAlgorithm const& line : registered_algorithms()) {
    if (!has_data(line.collective) || has_servers(line.collective)) continue;
    Index const elements = std::min(Index{1 << 12}, line.most_elements);
    Problem problem = Problem::on_one_node(line.collective, Partition::even(elements, 4));
    problem.shared_memory = line.needs == MemoryNeed::shared_memory;
    problem.segment = 128;
    std::vector<Round> const cut = make_schedule(problem, line.algorithm, 1).rounds;
    problem.segment = 1 << 12;
    INFO(to_string(line.collective) << " " << to_string(line.algorithm));
    CHECK((cut != make_schedule(problem, line.algorithm, 1).rounds) == is_segmented(line.algorithm));
  }
}

TEST_CASE("nothing to choose from is refused with the reason", "[chooser]") {
  Problem problem = all_reduce(97, 4);
  std::array const foreign{Algorithm::dissemination};
  CHECK_THROWS_AS(choose_algorithm(problem, element, default_machine(), foreign), InputError);
  for (RegisteredAlgorithm const& line : registered_algorithms()) {
    if (line.collective != Collective::all_reduce || line.needs != MemoryNeed::shared_memory) continue;
    CHECK_THROWS_MATCHES(choose_algorithm(problem, element, default_machine(), {&line.algorithm, 1}), InputError,
                         MessageMatches(ContainsSubstring("shared memory")));
  }
}

TEST_CASE("a choice is written with its segment", "[chooser]") {
  CHECK(to_string(PricedAlgorithm{Algorithm::ring, 0, 1e-6}) == "ring");
  CHECK(to_string(PricedAlgorithm{Algorithm::segmented_ring, 16384, 1e-6}) == "segmented_ring/16384");
}
