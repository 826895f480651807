#pragma once

// Lets algorithms that need a power of two run on any number of members. A group has N = P + e members, where P is the
// largest power of two. Members 2i and 2i+1 with i < e pair up. The odd member folds: it hands its data to the even
// member, which takes part as number i of the core. The other members are numbers e, e+1, ... Owns this numbering and
// the rounds of folding. Consecutive numbers stand for consecutive members, so that their blocks lie side by side.
// Source: Optimization of Collective Communication Operations in MPICH, Int. J. High Perform. Comput. Appl. 19(1),
// 2005.

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

class PowerOfTwoCore {
public:
  explicit PowerOfTwoCore(Rank members);

  /// P, the size of the core: a power of two.
  Rank core() const { return m_core; }
  /// e, the number of members that fold; below P.
  Rank excess() const { return m_excess; }
  bool has_partner(Rank member) const { return member < 2 * m_excess; }
  bool is_folded(Rank member) const { return has_partner(member) && member % 2 == 1; }
  /// The other member of a pair.
  Rank partner(Rank member) const { return member ^ 1; }
  /// The number in the core that a member has, or its partner if it folds.
  Rank number_of(Rank member) const { return has_partner(member) ? member / 2 : member - m_excess; }
  Rank member_at(Rank number) const { return number < m_excess ? 2 * number : number + m_excess; }
  /// One block per number: the block of the member, joined with the block of its partner.
  Partition merged(Partition const& blocks) const;

private:
  Rank m_core;
  Rank m_excess;
};

/// One round: folded members send the range, their partners add it to theirs. Uses the range's size of scratch.
void append_folding_sum(ScheduleBuilder& builder, Group const& group, Range const& range);
/// One round: folded members receive the range from their partners.
void append_unfolding(ScheduleBuilder& builder, Group const& group, Range const& range);

} // namespace trainstone
