#pragma once

// A few ranks that include the rank that sends most and the rank that needs most scratch, for every algorithm of
// all-reduce, reduce-scatter and all-gather. So a plan for thousands of ranks is not made for each rank. A pure
// function; a test over all algorithms shows that it is true.

#include "comm/schedule/topology.hpp"

#include <vector>

namespace trainstone {

/// The ranks in ascending order. All ranks, if there are few.
std::vector<Rank> extreme_ranks(Topology const& topology);

} // namespace trainstone
