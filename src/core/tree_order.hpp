#pragma once

// The order of a sum that is the same however its terms are shared out: the balanced binary tree over their numbers.
// Neighbours are added level by level, a last term without a partner moves up unchanged.

#include "core/index.hpp"

#include <Kokkos_Macros.hpp>

namespace trainstone {

/// Adds up terms 0 ... count-1 in that tree, with few sums at a time: they wait at places 0, 1, ..., the longest first.
/// place(i, p) puts term i at place p. merge(p) adds what is at place p to place p-1. At the end the sum is at place 0.
/// Complexity: O(count) calls; floor(lg count) + 1 places.
template <class Place, class Merge>
KOKKOS_INLINE_FUNCTION void add_in_tree(Index count, Place const& place, Merge const& merge) {
  Index size = 0;
  for (Index i = 0; i < count; ++i) {
    place(i, size++);
    for (Index bits = i; bits % 2 == 1; bits /= 2) merge(--size);
  }
  while (size > 1) merge(--size);
}

} // namespace trainstone
