#pragma once

#include "core/index.hpp"

#include <cstdint>

namespace trainstone {

/// Values that one team adds in tree_sum(), a power of two: their sum is a node of the balanced binary tree.
inline constexpr Index tree_leaves = 4096;

/// Kernels that tree_sum() starts for so many values: each leaves a sum of every tree_leaves values.
constexpr std::uint64_t tree_sum_launches(Index values) {
  std::uint64_t launches = 1;
  for (; values > tree_leaves; values = (values + tree_leaves - 1) / tree_leaves) ++launches;
  return launches;
}

} // namespace trainstone
