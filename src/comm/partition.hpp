#pragma once

// How the elements of a buffer are cut into one block per rank. Owns Range and Partition, both plain values.
// Promises: blocks lie one after the other without gaps; any sizes are normal, zero-length blocks and an empty
// buffer too. Knows nothing of types, bytes or MPI.

#include "core/views.hpp"

#include <utility>
#include <vector>

namespace trainstone {

using Rank = int; ///< a rank's number in its communicator, or a number of ranks

/// Elements begin ... end-1 of a buffer.
struct Range {
  Index begin = 0;
  Index end = 0;

  Index size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool overlaps(Range const& other) const { return begin < other.end && other.begin < end; }
  bool operator==(Range const&) const = default;
};

/// A buffer's elements in blocks, block i being rank i's.
class Partition {
public:
  /// Blocks that differ by at most one element, the larger ones first.
  static Partition even(Index elements, Rank ranks);
  /// Blocks of the given sizes, which may be zero.
  static Partition of_sizes(std::vector<Index> const& sizes);

  Rank ranks() const { return static_cast<Rank>(m_offsets.size()) - 1; }
  Index elements() const { return m_offsets.back(); }
  Range range(Rank block) const;
  Index largest() const;
  /// Where each block begins, and after the last one the number of elements: ranks() + 1 values.
  std::vector<Index> const& offsets() const { return m_offsets; }
  bool operator==(Partition const&) const = default;

private:
  explicit Partition(std::vector<Index> offsets) : m_offsets(std::move(offsets)) {}

  std::vector<Index> m_offsets;
};

} // namespace trainstone
