#include "comm/execution/ranks_by_text.hpp"

#include <fmt/ranges.h>

#include <map>

namespace trainstone {

std::string ranks_by_text(std::vector<std::string> const& texts) {
  std::map<std::string, std::vector<std::size_t>> ranks_of;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) ranks_of[texts[rank]].push_back(rank);
  std::string line;
  for (auto const& [text, ranks] : ranks_of)
    line += fmt::format("{}rank{} {}: {}", line.empty() ? "" : "; ", ranks.size() == 1 ? "" : "s",
                        fmt::join(ranks, ", "), text);
  return line;
}

} // namespace trainstone
