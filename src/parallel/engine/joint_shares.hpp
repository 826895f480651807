#pragma once

// Shares of groups that lie side by side in memory: one vector to kernels that look at elements alone. Owns nothing.

#include "core/stored.hpp"

#include <functional>
#include <vector>

namespace trainstone {

/// Whether `next` begins where `first` ends.
bool adjoin(StoredVector const& first, StoredVector const& next);

/// Shares side by side, of groups in order.
struct JointShares {
  Index first_group; ///< with a share
  StoredVector values;
};

/// The shares of groups [first, last], as few vectors. Groups of which this rank has no share are passed over.
std::vector<JointShares> joint_shares(Index first, Index last, std::function<StoredVector(Index group)> const& share);

} // namespace trainstone
