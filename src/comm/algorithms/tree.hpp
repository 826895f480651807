#pragma once

// All-reduce on a binomial tree: reduce to rank 0, then broadcast from there. 2 ceil(lg N) rounds of whole buffers, any
// number of ranks; for short messages.
// Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005.

#include "comm/schedule/problem.hpp"

namespace trainstone {

Schedule make_tree_all_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
