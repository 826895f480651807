#include "train/step_prediction.hpp"

#include <algorithm>

namespace trainstone {

namespace {

double message_seconds(std::uint64_t messages, std::uint64_t bytes, PiecewiseLinear const& curve,
                       EmulatedNetwork const& network) {
  if (messages == 0) return 0;
  auto const count = static_cast<double>(messages);
  double const size = static_cast<double>(bytes) / count;
  return count * std::max(curve(size), network.latency + network.seconds_per_byte * size);
}

/// Sums are of gradients, but for a handful of control traffic.
double traffic_seconds(Traffic const& sent, std::size_t value_bytes, MachineModel const& machine,
                       EmulatedNetwork const& network) {
  return message_seconds(sent.messages - sent.inter_messages, sent.bytes - sent.inter_bytes, machine.of(Link::intra),
                         network) +
         message_seconds(sent.inter_messages, sent.inter_bytes, machine.of(Link::inter), network) +
         (sent.reduced > 0 ? machine.reduce(static_cast<double>(sent.reduced * value_bytes)) : 0) +
         (sent.shared_bytes > 0 ? machine.fetch(static_cast<double>(sent.shared_bytes)) : 0);
}

} // namespace

double floor_seconds(RunPlan const& plan, OptimizerConfig const& optimizer, ComputeRates const& all) {
  auto const flops = static_cast<double>(plan.step_flops.gemm) * plan.ranks;
  StateTypes const& types = plan.parallel.types;
  std::size_t const gradient = bytes_per_value(plan.storage().gradients);
  std::size_t const narrow = types.master ? bytes_per_value(types.parameters) : 0;
  auto const bytes_per_parameter =
      static_cast<double>(gradient + narrow) + static_cast<double>(8 * (1 + optimizer.moments()));
  return flops / all.gemm_flops_per_second +
         bytes_per_parameter * static_cast<double>(plan.table.model_parameters()) / all.bandwidth_bytes_per_second;
}

StepPrediction predict_step(RunPlan const& busiest, OptimizerConfig const& optimizer, ComputeRates const& one,
                            MachineModel const& machine, EmulatedNetwork const& network) {
  auto const ranks = static_cast<double>(busiest.ranks);
  StepPrediction step;
  step.compute_seconds =
      floor_seconds(busiest, optimizer, {ranks * one.gemm_flops_per_second, ranks * one.bandwidth_bytes_per_second});
  std::size_t const value_bytes = bytes_per_value(busiest.storage().gradients);
  for (auto const* rows : {&busiest.sent, &busiest.control})
    for (TrafficRow const& row : *rows)
      step.communication_seconds += traffic_seconds(row.traffic, value_bytes, machine, network);
  return step;
}

} // namespace trainstone
