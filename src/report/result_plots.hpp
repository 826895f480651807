#pragma once

// The plots of one result. Pure functions: they show what the file has, and compute no more than medians and means.

#include "report/page.hpp"
#include "report/report_input.hpp"

#include <vector>

namespace trainstone {

/// Losses, step times, phases, ranks and memory: those that the result has samples for.
std::vector<Figure> result_figures(NamedResult const& named);

} // namespace trainstone
