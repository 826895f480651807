// The choice between algorithms that are predicted to be about as fast.

#include "comm/measurement/measured_choice.hpp"

#include "comm/execution/control.hpp"
#include "comm/schedule/emulated_network.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <vector>

using namespace trainstone;

namespace {

struct Trial {
  Trial(Communicator const& communicator, Problem const& problem, std::vector<PricedAlgorithm> const& candidates,
        bool shared)
      : memory(ExecutionSpace(), communicator, ledger, "test",
               contest_bytes(communicator.buffers(), problem, communicator.rank(), ElementType::float32,
                             contestants(candidates)),
               shared) {}

  static std::vector<Contestant> contestants(std::vector<PricedAlgorithm> const& candidates) {
    std::vector<Contestant> all;
    for (PricedAlgorithm const& one : candidates) all.push_back({.algorithm = one.algorithm, .segment = one.segment});
    return all;
  }

  MemoryLedger ledger;
  MeasuredMemory memory;
};

} // namespace

TEST_CASE("what is measured to be the fastest is chosen, whatever was predicted", "[mpi][choice]") {
  Communicator communicator = Communicator::world();
  if (communicator.size() < 3) return; // with fewer ranks the two algorithms differ too little
  // of 3 or 4 ranks the messages of a ring take 120 or 180 ms, those of a butterfly 90 or 60 ms
  communicator.emulate_network(EmulatedNetwork::uniform({.latency = 30e-3}));
  Problem const problem = even_problem(Collective::all_reduce, 1009, communicator.topology(), 0, 1);
  PricedAlgorithm const ring{Algorithm::ring, 0, 1e-6}, butterfly{Algorithm::butterfly, 0, 2e-6};
  for (std::vector<PricedAlgorithm> const& candidates :
       {std::vector{ring, butterfly}, std::vector{butterfly, ring}, std::vector{ring}}) {
    Trial const trial(communicator, problem, candidates, false);
    PricedAlgorithm const chosen =
        choose_by_measurement(ExecutionSpace(), communicator, problem, Operation::sum, ElementType::float32, candidates,
                              trial.memory.buffers(), true);
    CHECK(chosen == (candidates.size() == 1 ? ring : butterfly));
  }
}

TEST_CASE("all ranks choose the same", "[mpi][choice]") {
  test::skip_on_devices("algorithms of shared memory are the host's");
  Communicator communicator = Communicator::world();
  for (Collective const collective : {Collective::all_gather, Collective::broadcast}) {
    Problem problem = even_problem(collective, 16, communicator.topology(), 0, 1);
    problem.shared_memory = true;
    std::vector<PricedAlgorithm> const candidates = close_candidates(problem, 4, default_machine());
    Trial const trial(communicator, problem, candidates, true);
    PricedAlgorithm const chosen =
        choose_by_measurement(ExecutionSpace(), communicator, problem, Operation::sum, ElementType::float32, candidates,
                              trial.memory.buffers(), true);
    CHECK(std::ranges::find(candidates, chosen) != candidates.end());
    std::vector<int> const all = all_gather_values(communicator, static_cast<int>(chosen.algorithm));
    CHECK(std::ranges::count(all, all.front()) == communicator.size());
    std::vector<double> const seconds = time_candidates(ExecutionSpace(), communicator, problem, Operation::sum,
                                                        ElementType::float32, candidates, trial.memory.buffers(), true);
    REQUIRE(seconds.size() == candidates.size());
    for (double const mine : seconds) {
      std::vector<double> const of_all = all_gather_values(communicator, mine);
      CHECK(std::ranges::count(of_all, mine) == communicator.size());
    }
  }
}
