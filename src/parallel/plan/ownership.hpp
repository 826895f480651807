#pragma once

// Says which rank of a shard group owns which elements of every parameter group: a part of each group, or whole units.
// A plain value, the same on all ranks. Its size does not grow with the number of elements. Does not know which parts
// of the training state are sharded.

#include "comm/schedule/partition.hpp"
#include "model/parameter_table.hpp"

#include <optional>
#include <vector>

namespace trainstone {

class Ownership {
public:
  Ownership() = default;
  /// Member m owns the m-th of equal parts of every group.
  static Ownership of_parts(std::vector<ParameterGroup> const& groups, Rank members);
  /// The last `servers` members own equal parts of every group, the others nothing.
  static Ownership of_servers(std::vector<ParameterGroup> const& groups, Rank members, Rank servers);
  /// Every unit has one owner. Units are dealt out from the largest to the smallest; equal units go in their order.
  /// Each unit goes to the member with the fewest elements so far, and to the first of equal members. A member may own
  /// nothing.
  static Ownership of_units(std::vector<ParameterGroup> const& groups, std::vector<ParameterUnit> const& units,
                            Rank members);

  /// One member owns everything.
  static Ownership of_one(std::vector<ParameterGroup> const& groups, Rank members, Rank owner);

  /// The member that owns a whole group, if there is one.
  std::optional<Rank> owner(Index group) const;
  /// Number of members that own a part of a group.
  Rank owners() const { return m_owners.empty() ? members() - m_first : 1; }
  /// The member that owns a part of a group, of as many parts as there are owners.
  Rank owner_of_part(Index group, Index part) const { return owner(group).value_or(m_first + static_cast<Rank>(part)); }
  /// The range of a group that a member owns, counted from the group's begin. It may be empty.
  Range share(Index group, Rank member) const;
  /// The elements that an owner has of a group.
  Index share_elements(Index group) const { return m_sizes[static_cast<std::size_t>(group)] / owners(); }
  /// Where its share of a group begins in a vector of a member's shares; 0 if it owns nothing of the group.
  Index offset(Index group, Rank member) const;
  /// Block m: all shares of member m, in a vector of all members' shares.
  Partition const& members_shares() const { return m_shares; }
  Index elements(Rank member) const { return m_shares.size(member); }

private:
  Ownership(std::vector<ParameterGroup> const& groups, std::vector<Rank> owners, Rank members, Rank first = 0);
  Rank members() const { return m_shares.ranks(); }

  std::vector<Index> m_sizes; ///< of every group, padded
  std::vector<Rank> m_owners; ///< of every group; none: every member from m_first on owns a part of each group
  Rank m_first = 0;
  std::vector<Index> m_offsets; ///< of every group, in a vector of an owner's shares
  Partition m_shares = Partition::even(0, 1);
};

} // namespace trainstone
