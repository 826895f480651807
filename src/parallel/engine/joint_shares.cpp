#include "parallel/engine/joint_shares.hpp"

namespace trainstone {

bool adjoin(StoredVector const& first, StoredVector const& next) {
  std::span<std::byte> const before = bytes_of(first);
  return first.storage == next.storage && before.data() + before.size() == next.data;
}

std::vector<JointShares> joint_shares(Index first, Index last, std::function<StoredVector(Index group)> const& share) {
  std::vector<JointShares> all;
  for (Index group = first; group <= last; ++group) {
    StoredVector const values = share(group);
    if (values.size == 0) continue;
    if (!all.empty() && adjoin(all.back().values, values))
      all.back().values.size += values.size;
    else
      all.push_back({group, values});
  }
  return all;
}

} // namespace trainstone
