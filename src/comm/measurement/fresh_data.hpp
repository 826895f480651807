#pragma once

// Calls that find data which their rank has just written, and whose result the rank then reads, as in a training.
// Without the writing, what is in shared memory lies in the caches where the call before has left it. Without the
// reading, a rank that writes into its neighbour's memory seems to be faster than one that reads there: the neighbour
// pays when it reads. Owns writing and reading, and how their time is taken off.

#include "comm/measurement/collective_timing.hpp"
#include "core/views.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace trainstone {

/// Writes ones to all of `data`; complete when it returns. For all element types of collectives.
template <class T>
TimedCall write_call(ExecutionSpace const& exec, Vector<T> data);

/// Brings all of `data` to this rank: reads a byte of every 32, the least that caches move; complete when it returns.
TimedCall read_call(ExecutionSpace const& exec, std::span<std::byte const> data);

/// A call and where its result is read.
struct FreshCall {
  TimedCall call;
  TimedCall read;
};

/// Of calls that each follow a `write` and are followed by their `read`: without the median time of `write` and
/// `read_own`, which were measured in the same passes. `read_own` reads as much as the calls' reads do, and no call
/// came before. Collective over the communicator.
std::vector<TimedSamples> time_fresh(Communicator const& communicator, std::vector<FreshCall> const& calls,
                                     TimedCall const& write, TimedCall const& read_own, TimingOptions const& options);

} // namespace trainstone
