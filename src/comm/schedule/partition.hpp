#pragma once

// How the elements of a buffer are cut into one block per rank. Owns Range and Partition, both plain values.
// Promises: blocks lie one after the other without gaps; any sizes are normal, zero-length blocks and an empty
// buffer too. Knows nothing of types, bytes or MPI.

#include "comm/schedule/fingerprint.hpp"
#include "core/index.hpp"

#include <memory>
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

/// A buffer's elements in blocks, block i being rank i's. Copies share their offsets.
class Partition {
public:
  /// Blocks that differ by at most one element, the larger ones first.
  static Partition even(Index elements, Rank ranks) { return even(Range{0, elements}, ranks); }
  /// The same of a part of a buffer.
  static Partition even(Range const& part, Rank ranks);
  /// Blocks of the given sizes, which may be zero.
  static Partition of_sizes(std::vector<Index> const& sizes);
  /// Blocks between the given offsets, which may not decrease: offsets.size() - 1 blocks.
  static Partition of_offsets(std::vector<Index> offsets);

  Rank ranks() const { return static_cast<Rank>(m_offsets->size()) - 1; }
  /// In all blocks.
  Index elements() const { return m_offsets->back() - m_offsets->front(); }
  Range range(Rank block) const;
  /// Blocks first ... last-1 as one range; empty if first == last.
  Range range(Rank first, Rank last) const;
  Index size(Rank block) const { return range(block).size(); }
  Index largest() const;
  /// Where each block begins, and where the last one ends: ranks() + 1 values.
  std::vector<Index> const& offsets() const { return *m_offsets; }
  /// Of the offsets. Kept, because schedules of very many ranks are made from one partition.
  Fingerprint const& fingerprint() const { return m_fingerprint; }
  bool operator==(Partition const& other) const {
    return m_offsets == other.m_offsets || *m_offsets == *other.m_offsets;
  }

private:
  explicit Partition(std::vector<Index> offsets);

  std::shared_ptr<std::vector<Index> const> m_offsets;
  Fingerprint m_fingerprint;
};

} // namespace trainstone
