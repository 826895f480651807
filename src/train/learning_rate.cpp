#include "train/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainstone {

double LearningRate::at(std::int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (schedule == ScheduleType::constant) return peak;
  auto const length = static_cast<double>(std::max<std::int64_t>(steps - warmup, 1));
  double const progress = std::min(static_cast<double>(step - warmup) / length, 1.0);
  double const low = final_fraction * peak;
  return low + (peak - low) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

double clip_factor(OptimizerConfig const& optimizer, double norm) {
  return optimizer.clip > 0 ? std::min(1.0, optimizer.clip / (norm + 1e-6)) : 1.0;
}

} // namespace trainstone
