#pragma once

// The sum of contributions that lie side by side in one rank's memory. Promises the same additions on every rank that
// holds the same contributions: ((0 + 1) + 2) + ..., whichever of them is its own. Does not fetch them.

#include "comm/schedule/schedule_builder.hpp"

#include <vector>

namespace trainstone {

/// contributions[own] = the sum of all, added in their order. Those before it become workspace.
/// \param[in] contributions  of equal size; scratch, but for number `own`
void append_sum_in_order(ScheduleBuilder& builder, std::vector<Slice> const& contributions, std::size_t own);

/// contributions[0] = the sum of all, in the balanced binary tree over their numbers. The others become workspace.
/// \param[in] contributions  of equal size
void append_sum_in_tree(ScheduleBuilder& builder, std::vector<Slice> const& contributions);

} // namespace trainstone
