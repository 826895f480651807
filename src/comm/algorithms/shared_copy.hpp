#pragma once

// All-reduce in the shared memory of one node in two steps: every rank sums up its block in its own memory, then
// copies the others'. Reads and writes more than the direct way (shared.hpp), but a rank writes its own memory only.
// Any number of ranks, any partition. Three node barriers: when all data is there, when all blocks are complete, and
// when nobody reads them any more.

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

/// Sums are evaluated in the balanced tree over the ranks and rounded once.
Schedule make_shared_copy_all_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
