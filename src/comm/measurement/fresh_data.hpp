#pragma once

// Calls that find data which their rank has just written, as in a training: without that, what is in shared memory lies
// in the caches where the call before has left it. Owns the writing and how its time is taken off.

#include "comm/measurement/collective_timing.hpp"
#include "core/views.hpp"

#include <vector>

namespace trainstone {

/// Writes ones to all of `data`; complete when it returns. For all element types of collectives.
template <class T>
TimedCall write_call(ExecutionSpace const& exec, Vector<T> data);

/// Of calls that each follow a `write`: without the time of this one, which was measured in the same pass.
/// Collective over the communicator.
std::vector<TimedSamples> time_fresh(Communicator const& communicator, std::vector<TimedCall> const& calls,
                                     TimedCall const& write, TimingOptions const& options);

} // namespace trainstone
