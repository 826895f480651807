#pragma once

// Lines of a text, for tests of tables.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace trainstone::test {

inline std::size_t longest_line(std::string_view text) {
  std::size_t longest = 0;
  while (!text.empty()) {
    std::size_t const end = std::min(text.find('\n'), text.size());
    longest = std::max(longest, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return longest;
}

/// The text with one blank for every run of them and none where a line begins or ends: widths of columns do not matter.
/// Begins with an end of line, so that "\nring 2 M" is looked for as the beginning of any line.
inline std::string without_widths(std::string_view text) {
  std::string words = "\n";
  for (char const character : text) {
    bool const blank = character == ' ';
    bool const follows_blank = words.back() == ' ' || words.back() == '\n';
    if (character == '\n' && words.back() == ' ') words.pop_back();
    if (!blank || !follows_blank) words += character;
  }
  return words;
}

} // namespace trainstone::test
