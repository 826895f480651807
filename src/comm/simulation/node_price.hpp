#pragma once

// The price of an algorithm by one node's ranks, which stand for all: what makes 65,536 ranks take seconds. Part of
// price() in simulator.hpp, which falls back on all ranks; apart so that tests see whether it was needed.

#include "comm/simulation/simulator.hpp"

#include <optional>
#include <vector>

namespace trainstone::Impl {

/// Nothing if the algorithm, the nodes or the partition are not alike, or if a rank would wait for ever. On one node
/// one rank stands for all. Elements are rounded up to a multiple of the ranks, and weigh as much less.
std::optional<double> price_of_one_node(Problem const& problem, Algorithm algorithm, std::size_t element_bytes,
                                        MachineModel const& machine, std::vector<int> const& placement = {});

} // namespace trainstone::Impl
