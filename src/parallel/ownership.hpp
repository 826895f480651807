#pragma once

// Which rank of a shard group owns which elements of every parameter group: a part of each of them, or whole ones. A
// plain value, the same on all ranks, whose size does not grow with elements. Does not know which of the training state
// is shared out.

#include "comm/partition.hpp"
#include "model/parameter_table.hpp"

#include <optional>
#include <vector>

namespace trainstone {

class Ownership {
public:
  Ownership() = default;
  /// Of every group, member m owns the m-th of equal parts.
  static Ownership of_parts(std::vector<ParameterGroup> const& groups, Rank members);
  /// Every group has one owner. From the largest group to the smallest one, of equal ones the first first, each goes to
  /// the member with the fewest elements so far, of equal ones the first. Members may own nothing.
  static Ownership of_groups(std::vector<ParameterGroup> const& groups, Rank members);

  /// One member owns everything.
  static Ownership of_one(std::vector<ParameterGroup> const& groups, Rank members, Rank owner);

  /// Who owns all of a group, if one member does.
  std::optional<Rank> owner(Index group) const;
  /// How many members own a part of a group.
  Rank owners() const { return m_owners.empty() ? members() : 1; }
  /// What a member owns of a group, counted from the group's begin; may be empty.
  Range share(Index group, Rank member) const;
  /// The elements that an owner has of a group.
  Index share_elements(Index group) const { return m_sizes[static_cast<std::size_t>(group)] / owners(); }
  /// Where its share of a group begins in a vector of a member's shares; 0 if it owns nothing of the group.
  Index offset(Index group, Rank member) const;
  /// Block m: all shares of member m, in a vector of all members' shares.
  Partition const& members_shares() const { return m_shares; }
  Index elements(Rank member) const { return m_shares.size(member); }

private:
  Ownership(std::vector<ParameterGroup> const& groups, std::vector<Rank> owners, Rank members);
  Rank members() const { return m_shares.ranks(); }

  std::vector<Index> m_sizes;   ///< of every group, padded
  std::vector<Rank> m_owners;   ///< of every group; none: everybody owns a part of each
  std::vector<Index> m_offsets; ///< of every group, in a vector of an owner's shares
  Partition m_shares = Partition::even(0, 1);
};

} // namespace trainstone
