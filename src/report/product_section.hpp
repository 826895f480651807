#pragma once

// A distributed product in a report: every way in which `matmul` has distributed it.

#include "report/page.hpp"
#include "report/report_input.hpp"

namespace trainstone {

Page product_section(NamedProduct const& named);

} // namespace trainstone
