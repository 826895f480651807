#pragma once

// All-gather by doubling: every rank holds 1, 2, 4, ... blocks from its own on and fetches as many from behind them.
// Any number of ranks, any partition; ceil(lg N) rounds, N-1 blocks. Differs from the circulant all-gather in its
// skips: powers of two, so that only the last round is shorter.
// Source: Efficient algorithms for all-to-all communications in multiport message-passing systems, IEEE Trans. Parallel
// Distrib. Syst. 8(11), 1997.

#include "comm/schedule/problem.hpp"

namespace trainstone {

Schedule make_bruck_all_gather(Problem const& problem, Rank rank);

} // namespace trainstone
