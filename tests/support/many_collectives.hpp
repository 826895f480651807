#pragma once

// One execution per algorithm of a problem, all on data of their own, to have many in flight.

#include "comm/execution/execution_queue.hpp"
#include "support/collective_run.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace trainstone::test {

/// One all-reduce per algorithm that this problem allows, each on data of its own.
struct ManyCollectives {
  ManyCollectives(Communicator& communicator, Problem const& problem, std::uint64_t bytes = std::uint64_t{1} << 24)
      : memory(communicator, bytes), arena(memory.arena()) {
    ExecutionSpace const exec;
    for (Algorithm const algorithm : algorithms_of(problem.collective)) {
      if (!refusal(problem, algorithm).empty()) continue;
      Schedule const schedule = make_schedule(problem, algorithm, communicator.rank());
      data.push_back(arena.vector<float>("data", problem.elements()));
      auto const scratch = arena.vector<float>("scratch", schedule.scratch_elements);
      executions.emplace_back(
          exec, communicator, schedule, Operation::sum, data.back(), scratch,
          ExecutionOptions{.segment = memory.segment(), .staging = take_staging(communicator, schedule)});
    }
    fill(problem, communicator.rank());
  }

  void fill(Problem const& problem, Rank rank) {
    std::vector<float> const values = input<float>(problem, rank);
    for (Vector<float> const& vector : data)
      copy_from_host<float>(ExecutionSpace(), values, vector, "trainstone::test: neighbours read the data");
  }

  std::span<std::byte> take_staging(Communicator const& communicator, Schedule const& schedule) {
    staging.push_back(make_staging(ledger, communicator, schedule, sizeof(float)));
    return staging.back().take(staging.back().capacity());
  }

  MemoryLedger ledger;
  std::deque<PinnedMemory> staging; ///< of each execution
  CollectiveMemory memory;
  Arena arena;
  std::vector<Vector<float>> data;
  std::deque<Execution> executions;
};

/// No member: nvcc 13.0 does not end on a CHECK in one.
inline void check_results(ManyCollectives const& many, Problem const& problem, Rank rank) {
  for (std::size_t i = 0; i < many.executions.size(); ++i) {
    INFO(to_string(many.executions[i].schedule().algorithm));
    std::vector<float> const values =
        copy_to_host<float>(ExecutionSpace(), many.data[i], "trainstone::test: the host reads the result");
    CHECK(mismatch(problem, Operation::sum, rank, values) == "");
  }
}

/// All in flight in a queue, waited for in an order of this rank's own.
inline void check_in_any_order(ManyCollectives& many, Problem const& problem, Rank rank) {
  many.fill(problem, rank);
  ExecutionQueue queue;
  for (Execution& execution : many.executions) queue.start(execution);
  std::vector<std::size_t> order(many.executions.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::minstd_rand(static_cast<unsigned>(rank + 1)));
  for (std::size_t const i : order) queue.wait(many.executions[i]);
  CHECK(queue.progress());
  check_results(many, problem, rank);
}

} // namespace trainstone::test
