#pragma once

// What workers and servers did that do not wait for each other: pushes, staleness, gaps and waiting, as lines and as a
// section of a page. Pure functions.

#include "report/page.hpp"
#include "result/servers_info.hpp"

#include <string>

namespace trainstone {

/// Lines, each with its end: the rule, staleness and gap beside their bounds; pushes by staleness; waiting by worker.
std::string servers_lines(ServersInfo const& info);

/// A heading and tables of the same.
Page servers_section(ServersInfo const& info);

} // namespace trainstone
