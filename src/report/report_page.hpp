#pragma once

// A whole report: its input, several results together, then each result alone.

#include "report/page.hpp"
#include "report/report_input.hpp"

#include <string>

namespace trainstone {

/// \param[in] version  of the program that makes the report
Page report_page(ReportInput const& input, std::string const& version);

/// Writes report.md, index.html and every figure as NAME.svg into the folder, which is made. Returns the names in that
/// order. \throws InputError if it cannot be written into
std::vector<std::string> write_report(Page const& page, std::string const& folder);

} // namespace trainstone
