#pragma once

// What commbench measured, in a report: bandwidth by size, ours and MPI's, and which algorithm was the fastest.

#include "report/page.hpp"
#include "report/report_input.hpp"

namespace trainstone {

Page commbench_section(NamedCommbench const& named);

} // namespace trainstone
