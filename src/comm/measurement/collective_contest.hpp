#pragma once

// One collective at one size, several ways: our algorithms and libraries' own collectives on the same data. Owns the
// contestants while they run. Promises: every contestant's result is checked before and after the timing, element by
// element (by ==); all run in the same memory, ours fenced at the end. What is done with a wrong result is the caller's
// business.

#include "comm/measurement/collective_timing.hpp"
#include "comm/measurement/measured_memory.hpp"
#include "comm/measurement/mpi_collective.hpp"
#include "comm/measurement/nccl_collective.hpp"
#include "comm/schedule/element.hpp"
#include "comm/schedule/problem.hpp"
#include "core/views.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trainstone {

/// A library with collectives of its own.
enum class CollectiveProvider { mpi, nccl };

/// One of our algorithms, or a provider's own collective.
struct Contestant {
  std::optional<Algorithm> algorithm; ///< nothing: the provider's
  Index segment = 0;                  ///< for Problem::segment
  MpiForm form = MpiForm::in_place;   ///< of MPI's own
  CollectiveProvider provider = CollectiveProvider::mpi;

  bool is_of(CollectiveProvider which) const { return !algorithm && provider == which; }
  bool operator==(Contestant const&) const = default;
};

/// "ring", "segmented_ring/16384", "mpi", "mpi/two_buffers", "nccl".
std::string to_string(Contestant const& contestant);

struct ContestOptions {
  TimingOptions timing = {};
  bool check = true;
  /// Every call finds data that its rank has just written, as in a training: without that, algorithms in shared memory
  /// find much of what they read in their own caches, where the call before has left it. Calls of collectives with a
  /// root or servers begin after a barrier, too: they would overlap else. What comes before a call is also measured
  /// alone, and taken off. false: one call after the other, on the result of the one before, as in nccl-tests.
  bool fresh = true;
  /// Of the communicator's ranks: for contestants of NCCL.
  NcclCommunicator const* nccl = nullptr;
};

struct ContestResult {
  TimedSamples samples;
  Index wrong = 0; ///< elements, over all ranks and both checks; 0 if nothing was checked
};

/// What all contestants need on a rank; they share it, because one runs at a time.
MeasuredBytes contest_bytes(MessageBuffers buffers, Problem const& problem, Rank rank, ElementType type,
                            std::span<Contestant const> contestants);

/// Results in the order of the contestants. Collective over the communicator.
/// \param[in] exec  ours are run here    \param[in,out] memory  at least contest_bytes() of the communicator's buffers
/// \throws InputError if an algorithm, or MPI, refuses the problem, or the type cannot be checked with so many ranks
std::vector<ContestResult> run_contest(ExecutionSpace const& exec, Communicator& communicator, Problem const& problem,
                                       Operation operation, ElementType type, std::span<Contestant const> contestants,
                                       MeasuredBuffers const& memory, ContestOptions const& options = {});

/// Rate of the busiest link = this x size / time: 2 (N-1)/N for an all-reduce, (N-1)/N where data is in blocks of the
/// ranks, 1 else. Size: of everybody's blocks together. As nccl-tests defines it. \param[in] ranks >= 1
double bus_factor(Collective collective, Rank ranks);

} // namespace trainstone
