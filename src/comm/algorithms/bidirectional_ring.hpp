#pragma once

// All-reduce on two rings at once: every block is cut into two halves, the first travels to the right, the second to
// the left, both in the same rounds, so that both directions of every link are in use. Any number of ranks, any
// partition; 2 (N-1) rounds with up to two messages of half a block per rank.
// Source: the ring of ring.hpp, run both ways.

#include "comm/schedule/problem.hpp"

namespace trainstone {

Schedule make_bidirectional_ring_all_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
