#include "core/aligned.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

std::vector<std::size_t> widths_of(std::vector<std::vector<std::string>> const& rows) {
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (auto const& row : rows)
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  return widths;
}

} // namespace

std::string folded(std::vector<std::vector<std::string>> const& rows, std::size_t width) {
  constexpr std::size_t between = 2; // blanks before a column
  std::vector<std::size_t> const widths = widths_of(rows);
  std::string text;
  std::size_t begin = 1;
  do {
    std::size_t end = begin, used = widths[0] + between;
    while (end < widths.size() && (end == begin || used + widths[end] + between <= width))
      used += widths[end++] + between;
    std::vector<std::vector<std::string>> piece;
    for (auto const& row : rows) {
      piece.push_back({row[0]});
      for (std::size_t column = begin; column < end; ++column) piece.back().push_back(row[column]);
    }
    text += aligned(piece);
    begin = end;
  } while (begin < widths.size());
  return text;
}

std::string aligned(std::vector<std::vector<std::string>> const& rows) {
  std::vector<std::size_t> const widths = widths_of(rows);
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
