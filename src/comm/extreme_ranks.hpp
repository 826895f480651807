#pragma once

// Ranks among which, whatever the algorithm of all-reduces, reduce-scatters and all-gathers, one sends most and one
// needs most scratch: so that a plan for thousands of ranks need not be made for each of them. A pure function; that it
// is true is a test over all algorithms.

#include "comm/topology.hpp"

#include <vector>

namespace trainstone {

/// Ascending. All ranks, if these are few.
std::vector<Rank> extreme_ranks(Topology const& topology);

} // namespace trainstone
