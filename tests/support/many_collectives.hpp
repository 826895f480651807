#pragma once

// One execution per algorithm of a problem, all on data of their own, to have many in flight.

#include "support/collective_run.hpp"

#include <catch2/catch_test_macros.hpp>

#include <deque>
#include <vector>

namespace trainstone::test {

/// One all-reduce per algorithm that this problem allows, each on data of its own.
struct ManyCollectives {
  ManyCollectives(Communicator& communicator, Problem const& problem, std::uint64_t bytes = std::uint64_t{1} << 24)
      : segment(communicator, ledger, MemoryCategory::buffers, "test", bytes), arena(segment.bytes()) {
    ExecutionSpace const exec;
    for (Algorithm const algorithm : algorithms_of(problem.collective)) {
      if (!refusal(problem, algorithm).empty()) continue;
      Schedule const schedule = make_schedule(problem, algorithm, communicator.rank());
      data.push_back(arena.vector<float>("data", problem.elements()));
      auto const scratch = arena.vector<float>("scratch", schedule.scratch_elements);
      executions.emplace_back(exec, communicator, schedule, Operation::sum, data.back(), scratch,
                              ExecutionOptions{.segment = &segment, .staging = take_staging(communicator, schedule)});
    }
    fill(problem, communicator.rank());
  }

  void fill(Problem const& problem, Rank rank) {
    std::vector<float> const values = input<float>(problem, rank);
    for (Vector<float> const& vector : data) std::copy(values.begin(), values.end(), vector.data());
  }

  std::span<std::byte> take_staging(Communicator const& communicator, Schedule const& schedule) {
    staging.push_back(make_staging(ledger, communicator, schedule, sizeof(float)));
    return staging.back().take(staging.back().capacity());
  }

  MemoryLedger ledger;
  std::deque<PinnedMemory> staging; ///< of each execution
  SharedSegment segment;
  Arena arena;
  std::vector<Vector<float>> data;
  std::deque<Execution> executions;
};

/// No member: nvcc 13.0 does not end on a CHECK in one.
inline void check_results(ManyCollectives const& many, Problem const& problem, Rank rank) {
  for (std::size_t i = 0; i < many.executions.size(); ++i) {
    INFO(to_string(many.executions[i].schedule().algorithm));
    std::vector<float> const values(many.data[i].data(), many.data[i].data() + many.data[i].extent(0));
    CHECK(mismatch(problem, Operation::sum, rank, values) == "");
  }
}

} // namespace trainstone::test
