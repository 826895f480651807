#pragma once

// The order of a sum that is the same however its terms are shared out: the balanced binary tree over their numbers.
// Neighbours are added level by level, a last term without a partner moves up unchanged.

#include "core/index.hpp"

#include <Kokkos_Macros.hpp>

namespace trainstone {

/// The steps of a sum in that tree. Few sums wait at a time: at places 0, 1, ..., the longest first. At the end the sum
/// is at place 0. A list that is walked, and no function that calls others, so that hosts and devices may walk it.
/// Complexity: 2 count - 1 steps; floor(lg count) + 1 places.
class TreeOrder {
public:
  struct Step {
    Index term; ///< that comes to the place; none: what is at the place is added to the place before
    Index place;

    KOKKOS_INLINE_FUNCTION bool adds() const { return term < 0; }
  };

  /// Of terms 0 ... count-1.
  KOKKOS_INLINE_FUNCTION explicit TreeOrder(Index count) : m_count(count) {}

  /// \return whether there is a next step
  KOKKOS_INLINE_FUNCTION bool next(Step& step) {
    if (m_additions > 0) {
      --m_additions;
      step = {-1, --m_waiting};
      return true;
    }
    if (m_term == m_count) return false;
    step = {m_term, m_waiting++};
    // as many as the term's number ends with ones; behind the last term, all that is left
    for (Index bits = m_term; bits % 2 == 1; bits /= 2) ++m_additions;
    if (++m_term == m_count) m_additions = m_waiting - 1;
    return true;
  }

private:
  Index m_count, m_term = 0, m_waiting = 0, m_additions = 0;
};

} // namespace trainstone
