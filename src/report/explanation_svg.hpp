#pragma once

// Explanations of collectives as a picture: a panel per round, a column per rank, a cell per block, an arrow per
// message, dashed where a move in shared memory takes the place of messages. One SVG file that needs nothing else. A
// pure function.

#include "comm/simulation/explanation.hpp"

#include <string>

namespace trainstone {

std::string explanation_svg(Explanation const& explanation);

} // namespace trainstone
