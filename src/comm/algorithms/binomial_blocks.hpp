#pragma once

// The blocks of one member in a binomial gather or scatter. Owns the place of the blocks of its subtree: in data if
// they are one piece there, else one after the other in scratch. Does not write messages.

#include "comm/algorithms/binomial_tree.hpp"
#include "comm/algorithms/blocks.hpp"
#include "comm/schedule/schedule_builder.hpp"

#include <vector>

namespace trainstone {

/// Tree positions are counted from the root: position p is member root + p, who owns the block of that number.
/// Refers to the partition, which must live as long.
class BinomialBlocks {
public:
  BinomialBlocks(Group const& group, Rank root, Partition const& blocks);

  BinomialPlace const& place() const { return m_place; }
  std::vector<BinomialSubtree> const& children() const { return m_children; }
  /// The blocks of a subtree, where they lie in data.
  Run run(BinomialSubtree const& subtree) const;

  /// Room for all blocks of this member's subtree, in one piece: data, or new scratch if they are two pieces there.
  Slice make_room(ScheduleBuilder& builder) const;
  /// A child's blocks in that room.
  Slice part(Slice const& whole, BinomialSubtree const& child) const;
  /// The member's own block in that room.
  Slice own_part(Slice const& whole) const { return part(whole, {m_place.position, m_place.position + 1}); }

private:
  Rank m_root;
  Partition const& m_blocks;
  BinomialPlace m_place;
  std::vector<BinomialSubtree> m_children;
};

} // namespace trainstone
