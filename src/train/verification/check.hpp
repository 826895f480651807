#pragma once

// The outcome of one verification of a run. A plain value.

#include <string>

namespace trainstone {

struct Check {
  std::string name; ///< e.g. "loss-curve"
  bool passed = false;
  double value = 0;   ///< the value that was found, in the check's own unit
  double limit = 0;   ///< the largest legal `value`, or (launch) the only legal one
  std::string detail; ///< says for people what was compared
  /// False: there was nothing to compare with. Such a check is neither passed nor failed, and has no limit.
  bool made = true;

  bool failed() const { return made && !passed; }
};

} // namespace trainstone
