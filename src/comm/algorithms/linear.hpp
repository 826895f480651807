#pragma once

// Gather and scatter in one round: the root exchanges a message with every rank. Least volume; N-1 messages at the
// root. Any number of ranks, any root, any partition.

#include "comm/problem.hpp"

namespace trainstone {

Schedule make_linear_gather(Problem const& problem, Rank rank);
Schedule make_linear_scatter(Problem const& problem, Rank rank);

} // namespace trainstone
