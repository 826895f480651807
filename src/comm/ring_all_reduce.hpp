#pragma once

// All-reduce on a ring: a reduce-scatter that leaves block r complete at rank r, then an all-gather. Every message
// goes to the right-hand neighbour. Any number of ranks, any partition; optimal volume, 2 (N-1) rounds.
// Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.

#include "comm/schedule.hpp"

namespace trainstone {

/// Received contributions of the reduce-scatter go to scratch (the largest block) and are added from there, so that
/// block b is summed in the order of ranks b+1, b+2, ..., b; all ranks end with the same bits.
Schedule make_ring_all_reduce(Partition const& partition, Rank rank);

} // namespace trainstone
