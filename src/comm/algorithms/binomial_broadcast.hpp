#pragma once

// Broadcast on a binomial tree: in every round each rank that has the data sends all of it to one that has not.
// ceil(lg N) rounds, any number of ranks, any root; for short messages.
// Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005.

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

/// All members end with what member `root` has in `range` of its data.
void append_binomial_broadcast(ScheduleBuilder& builder, Group const& group, Rank root, Range const& range);

Schedule make_binomial_broadcast(Problem const& problem, Rank rank);

} // namespace trainstone
