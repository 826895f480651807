#pragma once

// Which elements of a rank's shares belong to which tensor. A step of the optimizer goes over this list.

#include "parallel/plan/state_layout.hpp"

#include <vector>

namespace trainstone {

/// A tensor's elements within this rank's share of its group.
struct TensorShare {
  Index group;
  Range range;    ///< counted from the share's begin
  bool is_matrix; ///< weight decay "matrices" decays these
};

/// The tensors that have elements in the shares, in the order of the table.
std::vector<TensorShare> tensor_shares(StateLayout const& layout, ParameterTable const& table);

} // namespace trainstone
