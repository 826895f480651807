#pragma once

// Scatter on a binomial tree, the gather backwards: every rank gets the blocks of its subtree as one message, keeps its
// own and sends the others on. ceil(lg N) rounds, any number of ranks, any root, any partition.
// Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005.

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

/// Member i ends with block i of what member `root` has; other blocks of its data may be overwritten. Subtrees that go
/// on at block 0 behind the last one travel through scratch, as in the gather.
void append_binomial_scatter(ScheduleBuilder& builder, Group const& group, Rank root, Partition const& blocks);

Schedule make_binomial_scatter(Problem const& problem, Rank rank);

} // namespace trainstone
