#pragma once

#include "core/index.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

namespace trainstone {

/// Values side by side of which tree_sums() makes one sum.
struct TreeSection {
  Index begin, count;
};

/// Sections that one kernel goes over.
inline constexpr Index most_tree_sections = 64;

/// Values that one team adds in tree_sum(), a power of two: their sum is a node of the balanced binary tree.
inline constexpr Index tree_leaves = 4096;

/// Kernels that tree_sum() starts for so many values: each leaves a sum of every tree_leaves values.
constexpr std::uint64_t tree_sum_launches(Index values) {
  std::uint64_t launches = 1;
  for (; values > tree_leaves; values = (values + tree_leaves - 1) / tree_leaves) ++launches;
  return launches;
}

/// Those that tree_sums() starts for all sections.
constexpr std::uint64_t tree_sums_launches(std::span<TreeSection const> sections) {
  std::uint64_t launches = 0;
  while (!sections.empty()) {
    auto const some = sections.first(std::min(sections.size(), static_cast<std::size_t>(most_tree_sections)));
    std::uint64_t most = 0;
    for (TreeSection const& section : some) most = std::max(most, tree_sum_launches(section.count));
    launches += most;
    sections = sections.subspan(some.size());
  }
  return launches;
}

} // namespace trainstone
