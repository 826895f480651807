#pragma once

// Runs any algorithm on real ranks with the data of collective_data.hpp: in memory that they share where kernels reach
// it, else in memory of the kernels alone, with staging where messages are staged.

#include "comm/algorithms/registry.hpp"
#include "comm/execution/buffers.hpp"
#include "comm/execution/execution.hpp"
#include "core/host_copy.hpp"
#include "core/memory.hpp"
#include "support/collective_data.hpp"
#include "support/views.hpp"

#include <optional>
#include <vector>

namespace trainstone::test {

constexpr std::uint64_t bytes_per_rank = std::uint64_t{1} << 28; // pages that nobody touches cost nothing

/// The problems of a collective on the ranks of this run. Shared memory where there is one node, and kernels reach it.
inline std::vector<Problem> problems(Communicator const& communicator, Collective collective, Index elements) {
  Rank const ranks = communicator.size();
  Problem const even{.collective = collective,
                     .partition = Partition::even(elements, ranks),
                     .topology = communicator.topology(),
                     .shared_memory = communicator.reaches_neighbours()};
  if (!has_data(collective)) return elements == 0 ? std::vector{even} : std::vector<Problem>{};
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
  return {ledger, "test", memory_footprint(staging_bytes(communicator.buffers(), schedule, element_bytes, longest))};
}

/// Memory for collectives of a communicator: its neighbours' too where they can look at it.
class CollectiveMemory {
public:
  explicit CollectiveMemory(Communicator const& communicator, std::uint64_t bytes = bytes_per_rank) {
    if (communicator.reaches_neighbours())
      m_segment.emplace(communicator, m_ledger, MemoryCategory::buffers, "test", bytes);
    else
      m_own = Allocation(m_ledger, MemoryCategory::buffers, "test", bytes);
  }
  Arena arena() const { return Arena(m_segment ? m_segment->bytes() : m_own.bytes()); }
  /// Null: neighbours cannot look at it.
  SharedSegment* segment() { return m_segment ? &*m_segment : nullptr; }

private:
  MemoryLedger m_ledger;
  std::optional<SharedSegment> m_segment;
  Allocation m_own;
};

/// Memory of one execution, which it outlives: values, scratch, and staging where messages are staged.
template <class T>
struct OwnMemory {
  OwnMemory(Communicator const& communicator, Schedule const& schedule, std::vector<T> const& values,
            ExecutionOptions const& how = {})
      : data(values),
        scratch(schedule.scratch_elements, T{}),
        staging(make_staging(ledger, communicator, schedule, sizeof(T), how.longest_message)),
        options(how) {
    options.staging = staging.take(staging.capacity());
  }

  MemoryLedger ledger;
  DeviceTensor<T> data, scratch;
  PinnedMemory staging;
  ExecutionOptions options; ///< as given, with the staging
};

/// Memory for data and scratch, kept over a test.
class Workspace {
public:
  explicit Workspace(Communicator& communicator) : m_communicator(&communicator), m_memory(communicator) {}

  Rank rank() const { return m_communicator->rank(); }

  template <class T>
  std::vector<T> run(Problem const& problem, Algorithm algorithm, Operation operation,
                     ExecutionOptions const& options = {}) {
    return run_on<T>(input<T>(problem, rank()), problem, algorithm, operation, options);
  }
  /// \param[in] values  of the data; where options have pieces, of what these lie in
  template <class T>
  std::vector<T> run_on(std::vector<T> values, Problem const& problem, Algorithm algorithm, Operation operation,
                        ExecutionOptions options = {}) {
    ExecutionSpace const exec;
    Schedule const schedule = make_schedule(problem, algorithm, rank());
    Arena arena = m_memory.arena();
    auto const data = arena.vector<T>("data", std::ssize(values));
    auto const scratch = arena.vector<T>("scratch", schedule.scratch_elements);
    copy_from_host<T>(exec, values, data, "trainstone::test: neighbours read the data");
    options.segment = m_memory.segment();
    PinnedMemory staging = make_staging(m_ledger, *m_communicator, schedule, sizeof(T), options.longest_message);
    options.staging = staging.take(staging.capacity());
    Execution(exec, *m_communicator, schedule, operation, data, scratch, options).run();
    copy_to_host<T>(exec, data, values, "trainstone::test: the host reads the result");
    return values;
  }

private:
  Communicator* m_communicator;
  MemoryLedger m_ledger;
  CollectiveMemory m_memory;
};

} // namespace trainstone::test
