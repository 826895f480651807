// What holds for every line of the table of algorithms, whatever it is: whoever adds one is tested here.

#include "comm/algorithms/registry.hpp"
#include "comm/simulation/node_price.hpp"
#include "comm/simulation/simulator.hpp"
#include "support/problems.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <numeric>

using namespace trainstone;
using trainstone::test::name_of;
using trainstone::test::NamedProblem;
using trainstone::test::problems_for;
using trainstone::test::typical_problem;

namespace {

void prove_all_algorithms(std::vector<Rank> const& numbers_of_ranks) {
  for (RegisteredAlgorithm const& line : registered_algorithms()) {
    int proved = 0;
    for (Rank const ranks : numbers_of_ranks) {
      for (NamedProblem const& named : problems_for(line, ranks)) {
        auto const finding = find_defect(named.problem, make_schedules(named.problem, line.algorithm));
        INFO(name_of(line) << " on " << ranks << " ranks, " << named.name);
        CHECK((finding ? finding->message : "") == "");
        ++proved;
      }
    }
    INFO(name_of(line));
    CHECK(proved > 0);
  }
}

std::vector<Rank> from_to(Rank first, Rank last) {
  std::vector<Rank> ranks(static_cast<std::size_t>(last - first + 1));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

/// Every constant differs from the others, and from 0.
MachineModel uneven_machine() {
  MachineModel machine = uniform_machine({.alpha = 1e-6, .beta = 1e-10, .gamma = 3e-11});
  machine.of(Link::inter) = PiecewiseLinear(5e-6, 7e-10);
  machine.copy = PiecewiseLinear(2e-7, 2.3e-11);
  machine.combine_to_own = PiecewiseLinear(4e-8, 1.3e-11);
  machine.combine_to_all = PiecewiseLinear(5e-8, 1.7e-11);
  machine.fetch = PiecewiseLinear(3e-8, 1.7e-11);
  machine.push = PiecewiseLinear(2e-8, 1.1e-11);
  machine.node_barrier = 3e-7;
  return machine;
}

/// Whether the elements are sent, summed or held anywhere but at the caller's.
bool has_elements(NamedProblem const& named) { return named.problem.elements() > 0; }

std::size_t moves_of(std::vector<Schedule> const& schedules) {
  std::size_t moves = 0;
  for (Schedule const& schedule : schedules)
    for (Round const& round : schedule.rounds) moves += round.size();
  return moves;
}

} // namespace

TEST_CASE("every algorithm is proved on 1 to 14 ranks", "[comm][algorithms]") { prove_all_algorithms(from_to(1, 14)); }

TEST_CASE("every algorithm is proved on 15 to 19 ranks", "[comm][algorithms]") {
  prove_all_algorithms(from_to(15, 19));
}

TEST_CASE("every algorithm is proved on 20 to 23 ranks", "[comm][algorithms]") {
  prove_all_algorithms(from_to(20, 23));
}

TEST_CASE("every algorithm is proved on 24 to 26 ranks", "[comm][algorithms]") {
  prove_all_algorithms(from_to(24, 26));
}

TEST_CASE("every algorithm is proved on 27 to 29 ranks", "[comm][algorithms]") {
  prove_all_algorithms(from_to(27, 29));
}

TEST_CASE("every algorithm is proved on 30 to 31 ranks", "[comm][algorithms]") {
  prove_all_algorithms(from_to(30, 31));
}

TEST_CASE("every algorithm is proved on 32 to 33 ranks", "[comm][algorithms]") {
  prove_all_algorithms(from_to(32, 33));
}

TEST_CASE("every algorithm is proved on 48 and 64 ranks", "[comm][algorithms]") { prove_all_algorithms({48, 64}); }

TEST_CASE("every algorithm is proved on 100 ranks", "[comm][algorithms]") { prove_all_algorithms({100}); }

TEST_CASE("every algorithm says what it is, and moves nothing empty", "[comm][algorithms]") {
  for (RegisteredAlgorithm const& line : registered_algorithms()) {
    for (Rank const ranks : {1, 2, 5, 8}) {
      for (NamedProblem const& named : problems_for(line, ranks)) {
        INFO(name_of(line) << " on " << ranks << " ranks, " << named.name);
        std::vector<Schedule> const schedules = make_schedules(named.problem, line.algorithm);
        for (Schedule const& schedule : schedules) {
          CHECK(schedule.collective == line.collective);
          CHECK(schedule.algorithm == line.algorithm);
          CHECK(schedule.needs_shared_memory() <= (named.problem.shared_memory && line.uses_shared_memory()));
          for (Round const& round : schedule.rounds) CHECK(!round.empty());
        }
        // a barrier waits for all without having any elements, and so may shared memory
        bool const waits_anyway = !has_data(line.collective) || line.needs == MemoryNeed::shared_memory;
        if (!has_elements(named) && !waits_anyway) CHECK(moves_of(schedules) == 0);
        if (ranks == 1) CHECK(count(named.problem, schedules, 4).total == Traffic{});
      }
    }
  }
}

TEST_CASE("the table says which algorithms use shared memory, and which cannot do without it", "[comm][algorithms]") {
  for (RegisteredAlgorithm const& line : registered_algorithms()) {
    INFO(name_of(line));
    NamedProblem named = typical_problem(line, 6);
    named.problem.shared_memory = true;
    CHECK(make_schedule(named.problem, line.algorithm, 0).needs_shared_memory() == line.uses_shared_memory());
    named.problem.shared_memory = false;
    CHECK(refusal(named.problem, line.algorithm).empty() == (line.needs != MemoryNeed::shared_memory));
  }
}

TEST_CASE("all ranks of an all-reduce add up in the same tree", "[comm][algorithms]") {
  for (Algorithm const algorithm : algorithms_of(Collective::all_reduce)) {
    RegisteredAlgorithm const& line = find_algorithm(Collective::all_reduce, algorithm);
    for (Rank const ranks : {2, 3, 5, 6, 8, 13}) {
      NamedProblem const named = typical_problem(line, ranks);
      std::vector<Schedule> const schedules = make_schedules(named.problem, algorithm);
      for (Index const element : {Index{0}, named.problem.elements() / 2, named.problem.elements() - 1}) {
        std::string const tree = reduction_tree(named.problem, schedules, 0, element);
        INFO(name_of(line) << " on " << ranks << " ranks, " << named.name << ", element " << element);
        for (Rank rank = 1; rank < ranks; ++rank)
          CHECK(reduction_tree(named.problem, schedules, rank, element) == tree);
      }
    }
  }
}

TEST_CASE("losing any single move of any algorithm is found", "[comm][algorithms][defects]") {
  for (RegisteredAlgorithm const& line : registered_algorithms()) {
    for (Rank const ranks : {3, 4, 5}) {
      NamedProblem const named = typical_problem(line, ranks);
      std::vector<Schedule> const correct = make_schedules(named.problem, line.algorithm);
      REQUIRE(moves_of(correct) > 0);
      for (std::size_t rank = 0; rank < correct.size(); ++rank) {
        for (std::size_t round = 0; round < correct[rank].rounds.size(); ++round) {
          for (std::size_t i = 0; i < correct[rank].rounds[round].size(); ++i) {
            auto broken = correct;
            Round& moves = broken[rank].rounds[round];
            moves.erase(moves.begin() + static_cast<std::ptrdiff_t>(i));
            if (moves.empty()) broken[rank].rounds.erase(broken[rank].rounds.begin() + static_cast<Index>(round));
            INFO(name_of(line) << " on " << ranks << " ranks, rank " << rank << ", round " << round << ", move " << i);
            CHECK(find_defect(named.problem, broken));
          }
        }
      }
    }
  }
}

TEST_CASE("reading or writing one element beside any range of any algorithm is found", "[comm][algorithms][defects]") {
  for (RegisteredAlgorithm const& line : registered_algorithms()) {
    NamedProblem const named = typical_problem(line, 5);
    std::vector<Schedule> const correct = make_schedules(named.problem, line.algorithm);
    for (std::size_t rank = 0; rank < correct.size(); ++rank) {
      for (std::size_t round = 0; round < correct[rank].rounds.size(); ++round) {
        for (std::size_t i = 0; i < correct[rank].rounds[round].size(); ++i) {
          for (bool const source : {true, false}) {
            auto broken = correct;
            Move& move = broken[rank].rounds[round][i];
            if (move.size() == 0 || (source ? !move.reads() : !move.writes())) continue;
            Range& range = source ? move.from.range : move.to.range;
            ++range.begin;
            ++range.end;
            INFO(name_of(line) << ", rank " << rank << ", round " << round << ", move " << i);
            CHECK(find_defect(named.problem, broken));
          }
        }
      }
    }
  }
}

TEST_CASE("where one node stands for all, its price is that of all ranks", "[comm][algorithms]") {
  for (RegisteredAlgorithm const& line : registered_algorithms()) {
    for (Rank const ranks : {1, 6, 8, 16}) {
      for (int nodes = 1; nodes <= ranks; ++nodes) {
        if (ranks % nodes != 0) continue;
        for (int const ports : {1, 2}) {
          MachineModel machine = uneven_machine();
          machine.ports = ports;
          NamedProblem named = typical_problem(line, ranks == 1 ? 3 : ranks);
          named.problem.partition = Partition::even(!has_data(line.collective) ? 0 : 300 * ranks, ranks);
          named.problem.topology = Topology::block(ranks, nodes);
          named.problem.root = 0;
          named.problem.segment = 20;
          if (line.symmetry == PricingSymmetry::none || !refusal(named.problem, line.algorithm).empty()) continue;
          INFO(name_of(line) << " on " << ranks << " ranks, " << nodes << " nodes, " << ports << " ports");
          double const of_all = price(named.problem, make_schedules(named.problem, line.algorithm), 4, machine);
          CHECK(price(named.problem, line.algorithm, 4, machine) == Catch::Approx(of_all).epsilon(1e-12).margin(0));
          bool const claimed = line.symmetry == PricingSymmetry::nodes || ranks != 6;
          if (claimed) CHECK(Impl::price_of_one_node(named.problem, line.algorithm, 4, machine).has_value());
        }
      }
    }
  }
}
