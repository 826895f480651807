#pragma once

// Copies in the shared memory of one node that their owners make: a rank writes its block into its neighbours' memory,
// where shared.hpp lets each rank read. Stores that pass caches (core/push_bytes.hpp) can then carry the data, and no
// rank waits for a line that is in another core's cache. As many bytes and barriers as shared.hpp, no message and no
// scratch. Any number of ranks, any partition.

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

Schedule make_shared_push_all_gather(Problem const& problem, Rank rank);
/// The root alone works.
Schedule make_shared_push_broadcast(Problem const& problem, Rank rank);

} // namespace trainstone
