#pragma once

// Runs any algorithm on real ranks, in memory that they share, with the data of collective_data.hpp.

#include "comm/buffers.hpp"
#include "comm/execution/execution.hpp"
#include "comm/registry.hpp"
#include "core/memory.hpp"
#include "support/collective_data.hpp"

#include <algorithm>
#include <vector>

namespace trainstone::test {

constexpr std::uint64_t bytes_per_rank = std::uint64_t{1} << 28; // pages that nobody touches cost nothing

/// The problems of a collective on the ranks of this run. Shared memory where there is one node.
inline std::vector<Problem> problems(Communicator const& communicator, Collective collective, Index elements) {
  Rank const ranks = communicator.size();
  Problem const even{.collective = collective,
                     .partition = Partition::even(elements, ranks),
                     .topology = communicator.topology(),
                     .shared_memory = true};
  if (collective == Collective::barrier) return elements == 0 ? std::vector{even} : std::vector<Problem>{};
  if (has_servers(collective)) {
    std::vector<Problem> all;
    for (Rank servers = 1; servers < ranks; servers += 2) {
      all.push_back(even);
      all.back().servers = servers;
      all.back().partition = server_partition(elements, ranks - servers, servers);
    }
    return all;
  }
  std::vector<Problem> all{even};
  Problem uneven = even;
  std::vector<Index> sizes(static_cast<std::size_t>(ranks), 0);
  sizes.back() = elements - elements / 3;
  sizes.front() += elements / 3;
  uneven.partition = Partition::of_sizes(sizes);
  all.push_back(uneven);
  if (has_root(collective) && ranks > 1) {
    all.push_back(even);
    all.back().root = ranks - 1;
  }
  return all;
}

/// What an execution of the schedule on fp32 (or other) elements needs, and not a byte more.
inline PinnedMemory make_staging(MemoryLedger& ledger, Communicator const& communicator, Schedule const& schedule,
                                 std::size_t element_bytes, Index longest = longest_mpi_message) {
  return {ledger, "test", Arena::footprint(staging_bytes(communicator.buffers(), schedule, element_bytes, longest))};
}

/// Shared memory for data and scratch, kept over a test.
class Workspace {
public:
  explicit Workspace(Communicator& communicator)
      : m_communicator(&communicator),
        m_segment(communicator, m_ledger, MemoryCategory::buffers, "test", bytes_per_rank) {}

  template <class T>
  std::vector<T> run(Problem const& problem, Algorithm algorithm, Operation operation, ExecutionOptions options = {}) {
    ExecutionSpace const exec;
    Schedule const schedule = make_schedule(problem, algorithm, m_communicator->rank());
    Arena arena(m_segment.bytes());
    std::vector<T> values = input<T>(problem, m_communicator->rank());
    auto const data = arena.vector<T>("data", problem.elements());
    auto const scratch = arena.vector<T>("scratch", schedule.scratch_elements);
    std::copy(values.begin(), values.end(), data.data());
    options.segment = &m_segment;
    PinnedMemory staging = make_staging(m_ledger, *m_communicator, schedule, sizeof(T), options.longest_message);
    options.staging = staging.take(staging.capacity());
    Execution(exec, *m_communicator, schedule, operation, data, scratch, options).run();
    exec.fence("trainstone::test: the host reads the result");
    std::copy_n(data.data(), values.size(), values.begin());
    return values;
  }

private:
  Communicator* m_communicator;
  MemoryLedger m_ledger;
  SharedSegment m_segment;
};

} // namespace trainstone::test
