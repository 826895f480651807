#pragma once

// All-reduce by recursive halving and doubling: a reduce-scatter among partners at distances 1, 2, 4, ..., then an
// all-gather back. As few rounds as a tree and the volume of a ring, for powers of two; other numbers of ranks fold
// (power_of_two_core.hpp). Owns the building block too. The largest messages go to the nearest ranks, which are on the
// same node where nodes are blocks of ranks, and the sum is made in the balanced tree over the core. Source:
// Optimization of Collective Communication Operations in MPICH, Int. J. High Perform. Comput. Appl. 19(1), 2005.

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

/// The sum of all blocks at all members. Uses up to half of their size of scratch; all of it where members fold, and
/// then the same elements are cut into even blocks.
void append_rabenseifner_all_reduce(ScheduleBuilder& builder, Group const& group, Partition const& blocks);

Schedule make_rabenseifner_all_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
