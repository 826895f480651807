#pragma once

// Broadcast as a scatter on a binomial tree and an all-gather on the ring: every rank carries a share of the volume.
// ceil(lg N) + N-1 rounds, close to 2 S bytes sent by the busiest rank; for long messages. Any number of ranks, any
// root, any partition.
// Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005.

#include "comm/schedule/problem.hpp"

namespace trainstone {

Schedule make_scatter_all_gather_broadcast(Problem const& problem, Rank rank);

} // namespace trainstone
