#pragma once

// Which elements of a rank's shares weight decay may treat otherwise than others. A step of the optimizer goes over
// this list.

#include "parallel/plan/state_layout.hpp"

#include <vector>

namespace trainstone {

/// Elements side by side within this rank's share of a group: of matrices, or of other tensors.
struct DecayRun {
  Index group;
  Range range;    ///< counted from the share's begin
  bool is_matrix; ///< weight decay "matrices" decays these
};

/// All elements of the shares but padding, as few runs, in order.
std::vector<DecayRun> decay_runs(StateLayout const& layout, ParameterTable const& table);

} // namespace trainstone
