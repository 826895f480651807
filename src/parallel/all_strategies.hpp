#pragma once

// Every strategy that so many ranks can run: what must hold for all of them is tried on this list.

#include "core/index.hpp"
#include "parallel/config.hpp"

#include <vector>

namespace trainstone {

/// Strategies with their stages, partitions and ways to add up gradients, and hsdp with every group size between 1 and
/// all ranks that divides them. Buckets, overlap and order of sums are left as they are by default.
std::vector<ParallelConfig> all_strategies(Index ranks);

} // namespace trainstone
