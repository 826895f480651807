#include "parallel/plan/state_layout.hpp"

#include "core/error.hpp"
#include "kernels/norm_block.hpp"

#include <algorithm>

namespace trainstone {

Index StateLayout::largest_unit() const { return std::ranges::max(units, {}, &ParameterUnit::padded).padded; }

Index StateLayout::sections() const {
  Index count = 0;
  for (ParameterGroup const& group : groups) count += std::ssize(group.sections);
  return count;
}

Index StateLayout::table_group() const {
  auto const found = std::ranges::find(groups, token_table_group, &ParameterGroup::number);
  TRAINSTONE_REQUIRE(found != groups.end(), "none of {} groups is the token table", groups.size());
  return std::distance(groups.begin(), found);
}

Index StateLayout::unit_of(Index group) const {
  auto const found = std::ranges::find_if(units, [=](ParameterUnit const& unit) { return unit.has(group); });
  TRAINSTONE_REQUIRE(found != units.end(), "group {} is in none of {} units", group, units.size());
  return std::distance(units.begin(), found);
}

Index StateLayout::share_begin(Index group, bool shares_alone) const {
  return shares_alone ? share_offset(group) : groups[static_cast<std::size_t>(group)].offset + share(group).begin;
}

Index StateLayout::norm_blocks_begin(Index group, Rank owner) const {
  return (ownership.members_shares().range(owner).begin + ownership.offset(group, owner)) / norm_block;
}

Index StateLayout::collected_norm_blocks() const {
  if (ownership.owners() == 1) return 0;
  return std::ranges::max(groups, {}, &ParameterGroup::padded).padded / norm_block;
}

Index StateLayout::micro_batch(Index own, Rank of, Index each) const {
  Rank const together = sharding.gradients ? mesh.shard : 1;
  Index const apart = mesh.data() / together;
  Rank const index = mesh.data_index(of);
  return index / together * (each * mesh.data() / apart) + own * together + index % together;
}

} // namespace trainstone
