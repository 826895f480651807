#pragma once

// What runs took until their held-out loss was low enough (data.stop_loss): time, steps, samples and work, side by
// side. Pure functions.

#include "report/page.hpp"
#include "report/report_input.hpp"

#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// "12.3 s, 24 steps, 1536 tokens, 3.4e+09 FLOP". Nothing if the loss was not reached, or not asked for.
std::optional<std::string> cost_text(Result const& result);

/// A heading and a table: each run that has reached its loss, beside the fastest one of the same loss. Empty if none
/// has.
Page stop_section(std::vector<NamedResult> const& results);

} // namespace trainstone
