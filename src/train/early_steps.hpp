#pragma once

// Numbers that identify the first steps of a training, beside the losses. Losses of a few steps hardly depend on weight
// decay, epsilon or the learning rate, but these numbers do. Plain values.

#include <cstdint>
#include <vector>

namespace trainstone {

/// The number of these steps. A shorter training uses all its steps.
inline constexpr std::int64_t early_steps = 10;

struct EarlySteps {
  std::vector<double> norms;      ///< of each step's gradient, before clipping; not a number: the step was skipped
  std::vector<double> changes;    ///< ParameterChanges after the last of the steps; empty: not known
  std::int64_t changed_after = 0; ///< steps; 0: not known
  bool operator==(EarlySteps const&) const = default;
};

} // namespace trainstone
