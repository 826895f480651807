#pragma once

// Every strategy that a given number of ranks can run. Tests and checks that must hold for all strategies use this
// list.

#include "core/index.hpp"
#include "parallel/plan/config.hpp"

#include <vector>

namespace trainstone {

/// All strategies with their stages, partitions and ways to add up gradients, and hsdp with every group size that
/// divides the number of ranks. Buckets, overlap and the order of sums have their default values.
std::vector<ParallelConfig> all_strategies(Index ranks);

} // namespace trainstone
