#pragma once

// All-reduce through a main device: rank 0 collects all buffers, adds them up and distributes the sum. Two rounds, but
// rank 0 alone sends (N-1) S bytes, receives as many and keeps (N-1) S of scratch.

#include "comm/schedule/problem.hpp"

namespace trainstone {

/// Rank 0 adds in the order of ranks.
Schedule make_main_device_all_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
