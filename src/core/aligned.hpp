#pragma once

// Tables of texts. A pure function.

#include <string>
#include <vector>

namespace trainstone {

/// Rows of cells, columns as wide as they need to be; without blanks at the end of a line.
/// \param[in] rows  at least one, none longer than the first
std::string aligned(std::vector<std::vector<std::string>> const& rows);

} // namespace trainstone
