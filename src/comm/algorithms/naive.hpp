#pragma once

// All-reduce as one would first write it: everybody sends everything to everybody, one round. N-1 messages and
// (N-1) S bytes per rank, and as much scratch: for few ranks and for comparison.

#include "comm/schedule/problem.hpp"

namespace trainstone {

/// The contributions are added in the order of ranks on every rank, so that all end with the same bits.
Schedule make_naive_all_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
