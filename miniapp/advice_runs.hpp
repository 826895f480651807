#pragma once

// Runs of the program itself, one after the other, for `estimate --advise --check`.

#include "advice/advice.hpp"
#include "commands.hpp"

#include <vector>

namespace trainstone {

/// Median step times of the ways, in s, in their order. Each is a run of its own: LAUNCHER -n RANKS PROGRAM run DECK
/// --set ... \throws Error if a run does not end with a result, with the end of what it printed
std::vector<double> measured_steps(EstimateOptions const& options, std::vector<RankedWay> const& ways);

} // namespace trainstone
