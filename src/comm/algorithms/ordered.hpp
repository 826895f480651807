#pragma once

// Reduce-scatter, all-reduce and reduce in the balanced binary tree over the ranks, whatever their number: direct
// exchange, each rank adds up all contributions to its block in one go (a reduce's root to everything); the all-reduce
// goes on with a direct all-gather. The sum of an element is rounded once and depends neither on the partition nor on
// who adds it up. Any number of ranks, any partition, any root; optimal volume, N-1 messages per round.

#include "comm/schedule/problem.hpp"

namespace trainstone {

/// These use N times the rank's block of scratch.
Schedule make_ordered_reduce_scatter(Problem const& problem, Rank rank);
Schedule make_ordered_all_reduce(Problem const& problem, Rank rank);
/// Uses N times the data at the root.
Schedule make_ordered_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
