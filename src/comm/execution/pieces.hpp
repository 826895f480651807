#pragma once

// Where the elements of a collective's data lie in memory, if not one after the other: a bucket of gradients gives
// every rank its share of every parameter group, so a rank's block lies in one piece per group. A plain value, the same
// on all ranks. Schedules do not know of it: they count elements.

#include "comm/schedule/partition.hpp"

#include <vector>

namespace trainstone {

class Pieces {
public:
  /// The next elements of the data are those of `memory`, counted in elements from the buffer's begin. Neighbours in
  /// memory become one piece.
  void append(Range const& memory);

  /// Whether nothing was appended: element i lies at i.
  bool is_contiguous() const { return m_memory.empty(); }
  /// In all pieces.
  Index elements() const { return m_first.empty() ? 0 : m_first.back() + m_memory.back().size(); }
  /// The least length of the buffer.
  Index extent() const;

  /// Where element `element` lies.
  Index place(Index element) const;
  /// How many elements, from `element` on, lie one after the other; at most `at_most`.
  Index contiguous(Index element, Index at_most) const;

  bool operator==(Pieces const&) const = default;

private:
  std::size_t piece_of(Index element) const;

  std::vector<Range> m_memory;
  std::vector<Index> m_first; ///< element of each piece
};

} // namespace trainstone
