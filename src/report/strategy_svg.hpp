#pragma once

// A training step of a strategy as a picture: a panel per moment, a column per rank, a row per unit of parameters with
// three bars: parameters, gradient, optimizer state, filled as far as the rank has them. One SVG file that needs
// nothing else. A pure function.

#include <string>

namespace trainstone {

struct StepWalk;

std::string strategy_svg(std::string const& name, StepWalk const& walk);

} // namespace trainstone
