#pragma once

// All-reduce on a ring whose blocks travel in segments: the reduction of one segment runs while the next one is under
// way. Any number of ranks, any partition; the volume of the ring, 2 (N-1) rounds per segment of the largest block.
// Source: the ring of ring.hpp, in segments.

#include "comm/schedule/problem.hpp"

namespace trainstone {

Schedule make_segmented_ring_all_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
