#pragma once

// Gather on a binomial tree: every rank collects the blocks of its subtree and sends them on as one message.
// ceil(lg N) rounds, any number of ranks, any root, any partition; a block travels up to lg N times.
// Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005.

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

/// Member `root` ends with all blocks; member i begins with block i. If the blocks of a subtree wrap from the last
/// block to block 0, they go through scratch. That is at most one subtree per level, and none if root is 0.
void append_binomial_gather(ScheduleBuilder& builder, Group const& group, Rank root, Partition const& blocks);

Schedule make_binomial_gather(Problem const& problem, Rank rank);

} // namespace trainstone
