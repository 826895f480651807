#include "result/stop_cost.hpp"

namespace trainstone {

std::optional<StopCost> cost_to(double stop_loss, std::vector<StepReport> const& samples) {
  StopCost cost;
  for (StepReport const& sample : samples) {
    ++cost.steps;
    cost.seconds += sample.seconds;
    if (!sample.skipped) cost.tokens += static_cast<double>(sample.tokens);
    if (stop_loss > 0 && sample.validation_loss && *sample.validation_loss <= stop_loss) return cost;
  }
  return std::nullopt;
}

} // namespace trainstone
