#pragma once

// All-reduce by recursive doubling: in every round each rank exchanges its whole partial sum with a partner, at
// distances 1, 2, 4, ... Fewest rounds, lg N times the data: for small messages. Any number of ranks
// (power_of_two_core.hpp); the partition does not matter. The sum is made in the balanced tree over the core, the same
// on all ranks. Source: Optimization of Collective Communication Operations in MPICH, Int. J. High Perform. Comput.
// Appl. 19(1), 2005.

#include "comm/schedule/problem.hpp"

namespace trainstone {

/// Uses the data's size of scratch.
Schedule make_butterfly_all_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
