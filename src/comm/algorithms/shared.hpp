#pragma once

// Collectives in the shared memory of one node, each in one step between two node barriers: a rank works on its own
// block and reads its neighbours' memory, or writes it, where it lies. Any number of ranks, any partition; no messages
// and no scratch. Sums are evaluated in the balanced tree over the ranks and rounded once.

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

/// Copies of all other ranks' blocks from their owners' data into this rank's: of all-gathers, between node barriers.
void append_shared_copies(ScheduleBuilder& builder, Partition const& blocks, Rank rank);

/// A rank reads its block from all, adds up, and writes the sum to all.
Schedule make_shared_all_reduce(Problem const& problem, Rank rank);
/// A rank reads its block from all and keeps the sum.
Schedule make_shared_reduce_scatter(Problem const& problem, Rank rank);
/// Every rank reads an even share of the data from all, adds up, and writes the sum to the root.
Schedule make_shared_reduce(Problem const& problem, Rank rank);
/// A rank copies all other blocks from their owners: what it reads lands in its own cache.
Schedule make_shared_all_gather(Problem const& problem, Rank rank);
/// Every rank, the root too, copies an even share of the root's data to all others: twice as fast on two ranks as when
/// the other one copies all of it.
Schedule make_shared_broadcast(Problem const& problem, Rank rank);

} // namespace trainstone
