#pragma once

// Recursive halving and doubling in the core of a group (power_of_two_core.hpp): partners exchange half of what they
// still share, then half of that, and so on, or the other way round. Owns the building blocks and the reduce-scatter
// and all-gather made of them. Any number of ranks, any partition; lg N rounds, optimal volume if N is a power of two.
// Source: Optimization of Collective Communication Operations in MPICH, Int. J. High Perform. Comput. Appl. 19(1),
// 2005.

#include "comm/algorithms/power_of_two_core.hpp"

namespace trainstone {

/// The member that owns each block.
enum class Placement {
  in_order,     ///< block i is number i's; the largest messages go to the farthest partner
  bit_reversed, ///< block i is the reversed number's block; the largest messages go to the nearest partner
};

/// A member of the core among its partners.
class Hypercube {
public:
  /// \param[in] group whose member does not fold
  Hypercube(Group const& group, Placement placement);

  Rank size() const { return m_folding.core(); }
  /// The number of this member's block.
  Rank place() const { return m_place; }
  /// The rank whose block has that number.
  Rank rank_at(Rank place) const;

private:
  Rank reversed_if_asked(Rank number) const;

  Group m_group;
  PowerOfTwoCore m_folding;
  Placement m_placement;
  Rank m_place;
};

/// lg P rounds that leave the sum of block i at place i. \param[in] blocks P of them
void append_recursive_halving(ScheduleBuilder& builder, Hypercube const& cube, Partition const& blocks);
/// lg P rounds that take block i from place i to all.
void append_recursive_doubling(ScheduleBuilder& builder, Hypercube const& cube, Partition const& blocks);

/// Folded ranks send all their data and get their block back.
Schedule make_recursive_reduce_scatter(Problem const& problem, Rank rank);
/// Folded ranks send their block and get all data back.
Schedule make_recursive_all_gather(Problem const& problem, Rank rank);

} // namespace trainstone
