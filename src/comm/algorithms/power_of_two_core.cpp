#include "comm/algorithms/power_of_two_core.hpp"

#include "core/error.hpp"

#include <bit>
#include <vector>

namespace trainstone {

PowerOfTwoCore::PowerOfTwoCore(Rank members)
    : m_core(static_cast<Rank>(std::bit_floor(static_cast<unsigned>(members)))), m_excess(members - m_core) {
  TRAINSTONE_REQUIRE(members >= 1, "{} members cannot be folded", members);
}

Partition PowerOfTwoCore::merged(Partition const& blocks) const {
  if (m_excess == 0) return blocks;
  std::vector<Index> offsets;
  for (Rank number = 0; number < m_core; ++number) offsets.push_back(blocks.range(member_at(number)).begin);
  offsets.push_back(blocks.offsets().back());
  return Partition::of_offsets(std::move(offsets));
}

void append_folding_sum(ScheduleBuilder& builder, Group const& group, Range const& range) {
  PowerOfTwoCore const folding(group.size());
  if (!folding.has_partner(group.me())) return;
  Rank const partner = group[folding.partner(group.me())];
  if (folding.is_folded(group.me())) {
    builder.send(partner, data_slice(range));
  } else {
    builder.reuse_scratch();
    Range const received = builder.new_scratch(range.size());
    builder.receive(partner, scratch_slice(received));
    builder.reduce(scratch_slice(received), data_slice(range));
  }
  builder.end_round();
}

void append_unfolding(ScheduleBuilder& builder, Group const& group, Range const& range) {
  PowerOfTwoCore const folding(group.size());
  if (!folding.has_partner(group.me())) return;
  Rank const partner = group[folding.partner(group.me())];
  if (folding.is_folded(group.me())) {
    builder.receive(partner, data_slice(range));
  } else {
    builder.send(partner, data_slice(range));
  }
  builder.end_round();
}

} // namespace trainstone
