#pragma once

// All-reduce in the balanced binary tree over the ranks, whatever their number: direct exchange, each rank adds up all
// contributions to its block in one go, direct all-gather. The sum of an element is rounded once and depends neither on
// the partition nor on who adds it up. Any number of ranks, any partition; optimal volume, 2 (N-1) messages in 2
// rounds.

#include "comm/problem.hpp"

namespace trainstone {

/// Uses N times the rank's block of scratch.
Schedule make_ordered_all_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
