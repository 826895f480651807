#pragma once

// What a training took until its held-out loss was low enough. A pure function of its steps.

#include "train/events.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace trainstone {

/// What a training took until its held-out loss was low enough, without validations.
struct StopCost {
  std::int64_t steps = 0;
  double seconds = 0;
  double tokens = 0; ///< that it trained on: none of a step that was skipped
};
/// Nothing if it never was, or if there is no such loss (0). \param[in] samples  from the first step on
std::optional<StopCost> cost_to(double stop_loss, std::vector<StepReport> const& samples);

} // namespace trainstone
