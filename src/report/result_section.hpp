#pragma once

// One result in a report: its checks, its rate with the name that the outcome allows, its origin, predicted beside
// counted amounts, and plots.

#include "report/page.hpp"
#include "report/report_input.hpp"

namespace trainstone {

Page result_section(NamedResult const& named);

} // namespace trainstone
