#pragma once

// Measurements of commbench in a report: bandwidth by size, ours and libraries', and the fastest algorithm.

#include "report/page.hpp"
#include "report/report_input.hpp"

namespace trainstone {

Page commbench_section(NamedCommbench const& named);

} // namespace trainstone
