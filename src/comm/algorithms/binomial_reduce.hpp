#pragma once

// Reduce on a binomial tree, the broadcast backwards: in every round each rank that is left sends its sum or adds one
// to its own. ceil(lg N) rounds, any number of ranks, any root; for short messages.
// Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005.

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

/// Member `root` ends with the sum of all members' `range` of data; the others keep partial sums there.
/// Needs range.size() elements of scratch.
void append_binomial_reduce(ScheduleBuilder& builder, Group const& group, Rank root, Range const& range);

Schedule make_binomial_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
