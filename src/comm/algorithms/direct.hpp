#pragma once

// Direct exchange: every rank sends every other one its block, in one round. Owns the reduce-scatter and all-gather
// building blocks and collectives. Any number of ranks, any partition; optimal volume, N-1 messages per rank at once.

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

/// One round that leaves the sum of block i at member i: all other contributions arrive in scratch and are added to
/// data in the order of members i-1, i-2, ..., i+1. Uses n-1 times member i's block of scratch.
void append_direct_reduce_scatter(ScheduleBuilder& builder, Group const& group, Partition const& blocks);
/// One round that takes block i from member i to all.
void append_direct_all_gather(ScheduleBuilder& builder, Group const& group, Partition const& blocks);

Schedule make_direct_reduce_scatter(Problem const& problem, Rank rank);
Schedule make_direct_all_gather(Problem const& problem, Rank rank);

} // namespace trainstone
