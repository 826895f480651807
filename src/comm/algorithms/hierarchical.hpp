#pragma once

// All-reduce in two levels: a reduce-scatter inside each node, an all-reduce across nodes for each slice, an all-gather
// inside each node. There are as many lanes as the smallest node has ranks: lane j's slice is summed up at the j-th
// rank of every node, and these ranks run an all-reduce among themselves: Rabenseifner's if the nodes are a power of
// two, the circulant one, which need not fold, if they are not. Larger nodes' further ranks have no slice. Inside nodes
// messages go along a ring; with shared memory each rank adds up its slice from all neighbours' data, and copies the
// other slices from their owners. On one node the middle part is nothing. Any topology and number of ranks; the
// partition does not matter.

#include "comm/schedule/problem.hpp"

namespace trainstone {

Schedule make_hierarchical_all_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
