#pragma once

// All-reduce on a ring of whole buffers: what every rank contributes travels round the ring, and each rank adds up all
// of it by itself. N-1 rounds, (N-1) S bytes sent and as much scratch; the ring of blocks (ring.hpp) sends 2 S.

#include "comm/schedule/problem.hpp"

namespace trainstone {

/// The original buffers travel, along Topology::ring(), and are added in the order of ranks when all have come: partial
/// sums made on the way would be another tree on every rank, and so other bits.
Schedule make_whole_ring_all_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
