#pragma once

// Predicted scaling in a report: steps and efficiency of decks by numbers of ranks, from `estimate --sweep`.

#include "report/page.hpp"
#include "report/report_input.hpp"

namespace trainstone {

/// Nothing without sweeps.
Page sweep_section(std::vector<NamedSweep> const& sweeps);

} // namespace trainstone
