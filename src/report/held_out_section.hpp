#pragma once

// Held-out losses of several runs over time, in one picture: what a step costs counts as much as what it brings. Pure.

#include "report/page.hpp"
#include "report/report_input.hpp"

#include <vector>

namespace trainstone {

/// A heading, a figure of the first runs that have measured a held-out loss at least twice, and a table of all of them
/// after the same number of tokens, if there is one and they have the same model and data. Runs that are INVALID or
/// STOPPED are left out. Empty unless there are two of them.
Page held_out_section(std::vector<NamedResult> const& results);

} // namespace trainstone
