#pragma once

// Tables of texts. A pure function.

#include <string>
#include <vector>

namespace trainstone {

/// Rows of cells, columns as wide as they need to be; without blanks at the end of a line.
/// \param[in] rows  at least one, none longer than the first
std::string aligned(std::vector<std::vector<std::string>> const& rows);

/// The same in pieces below each other, each with the first column and as many others as fit.
/// \param[in] rows  all as long as the first  \param[in] width  of a line; a single column may be wider
std::string folded(std::vector<std::vector<std::string>> const& rows, std::size_t width);

} // namespace trainstone
