#pragma once

// Lines of a text, for tests of tables.

#include <algorithm>
#include <cstddef>
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

} // namespace trainstone::test
