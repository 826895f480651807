#pragma once

// Copies in the shared memory of one node that their owners make: a rank writes its block into its neighbours' memory,
// where shared.hpp lets each rank read. The data then need not stay in the writer's cache (core/push_bytes.hpp), and a
// rank need not wait for lines that are in another core's cache. As many bytes and barriers as shared.hpp, no message
// and no scratch. Any number of ranks, any partition.

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

Schedule make_shared_push_all_gather(Problem const& problem, Rank rank);
/// The root alone works.
Schedule make_shared_push_broadcast(Problem const& problem, Rank rank);

} // namespace trainstone
