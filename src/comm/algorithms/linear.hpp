#pragma once

// Broadcast, reduce, gather and scatter in one round: the root exchanges a message with every rank. Least volume for
// gather and scatter; N-1 messages at the root. Any number of ranks, any root, any partition.

#include "comm/schedule/problem.hpp"

namespace trainstone {

Schedule make_linear_broadcast(Problem const& problem, Rank rank);
/// The root adds up in the order of the ranks: ((0 + 1) + 2) + ... Uses N-1 times the data of scratch there.
Schedule make_linear_reduce(Problem const& problem, Rank rank);
Schedule make_linear_gather(Problem const& problem, Rank rank);
Schedule make_linear_scatter(Problem const& problem, Rank rank);

} // namespace trainstone
