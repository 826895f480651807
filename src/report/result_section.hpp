#pragma once

// One result in a report: what was verified and what not, its rate with the name that it may have, where it comes from,
// predicted beside counted, plots.

#include "report/page.hpp"
#include "report/report_input.hpp"

namespace trainstone {

Page result_section(NamedResult const& named);

} // namespace trainstone
