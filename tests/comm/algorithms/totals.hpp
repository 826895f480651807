#pragma once

// What tests of closed forms share beyond the table's columns: the traffic of all ranks together, and block sizes to
// try down to fewer elements than ranks. Knows no algorithm.

#include "comm/algorithms/closed_forms.hpp"

#include <fmt/ranges.h>

namespace trainstone::test {

/// In elements.
inline Traffic in_all(Index messages, Index sent, Index reduced = 0) {
  return {.messages = static_cast<std::uint64_t>(messages),
          .bytes = in_bytes(sent),
          .reduced = static_cast<std::uint64_t>(reduced)};
}

/// Uneven blocks, and even ones of so few elements that most are empty.
inline std::vector<std::vector<Index>> block_sizes_to_try(Rank ranks) {
  std::vector<std::vector<Index>> all_sizes = uneven_block_sizes(ranks);
  for (Index const elements : {1, 2, 7}) {
    Partition const even = Partition::even(elements, ranks);
    std::vector<Index>& sizes = all_sizes.emplace_back();
    for (Rank rank = 0; rank < ranks; ++rank) sizes.push_back(even.size(rank));
  }
  return all_sizes;
}

/// For messages: "3 blocks: 4 0 1".
inline std::string text_of(std::vector<Index> const& sizes) {
  return fmt::format("{} blocks: {}", sizes.size(), fmt::join(sizes, " "));
}

} // namespace trainstone::test
