#include "core/aligned.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

std::string aligned(std::vector<std::vector<std::string>> const& rows) {
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (auto const& row : rows)
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  std::string text;
  for (auto const& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column)
      line += fmt::format("  {:<{}}", row[column], widths[column]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

} // namespace trainstone
