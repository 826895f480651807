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

/// What one update does to the parameters from the seed, made for the first positions of the first sample alone. It
/// tells of forward, backward, reductions, clipping, epsilon, weight decay and the size of the learning rate. It does
/// not tell of betas and moments, which cancel in AdamW's first step, of the schedule, and of the order of data.
struct FirstUpdate {
  double norm = 0;               ///< of the gradient, before clipping
  std::vector<double> gradients; ///< mean |gradient| of each kind of tensor, before clipping
  std::vector<double> changes;   ///< ParameterChanges
  double loss_after = 0;         ///< of the same positions
  bool operator==(FirstUpdate const&) const = default;
};

} // namespace trainstone
