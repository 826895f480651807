#pragma once

// The learning rate. Owns the schedules; a pure function of the step that keeps no state.

#include "train/plan/config.hpp"

#include <cstdint>

namespace trainstone {

/// Learning rate of step s, counted from 0, in a training of `steps` steps:
///   s < warmup:  peak * (s + 1) / warmup                    so the first step already moves, and step warmup - 1 has
///                                                           the peak
///   constant:    peak
///   cosine:      low + (peak - low) * (1 + cos(pi * p)) / 2  with low = final_fraction * peak and
///                p = (s - warmup) / (steps - warmup), at most 1: the last step is still above low
/// These are the formulas of llm.c (llmc/schedulers.h).
struct LearningRate {
  ScheduleType schedule = ScheduleType::constant;
  double peak = 0;
  std::int64_t warmup = 0;
  std::int64_t steps = 0;
  double final_fraction = 0; ///< of the peak, reached at step `steps` by the cosine

  double at(std::int64_t step) const;
};

/// What a gradient of this norm is multiplied with: min(1, clip / (norm + 1e-6)), or 1 where the optimizer does not
/// clip.
double clip_factor(OptimizerConfig const& optimizer, double norm);

} // namespace trainstone
