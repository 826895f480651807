#pragma once

// The comparison of a run with a golden curve. Owns the bounds of curves that say none, and what is compared.

#include "report/golden.hpp"
#include "train/check.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace trainstone {

/// Whether products get their inputs as they are.
enum class Products {
  exact,  ///< fp32
  rounded ///< 16-bit storage, or fp32 that is rounded before it is multiplied
};

/// Of what differs between processors, strategies and numbers of ranks that all are right. Training amplifies it.
GoldenBounds golden_bounds(Products products);

/// Relative, on the mean of the last steps.
inline constexpr std::int64_t golden_last_steps = 10;
inline constexpr double golden_last_bound = 2e-2;

/// What a run did of what a golden curve tells.
struct GoldenComparison {
  std::span<double const> losses;
  EarlySteps const& early;
  Products products = Products::exact;
  bool may_stop_early = false; ///< data.stop_loss
};

/// "loss-curve", and if the curve has them "gradient-norms" and "parameter-changes". What the run does not know fails.
/// Where products round inputs the curve's own bounds hold only if they are the wider ones.
std::vector<Check> compare_with_golden(GoldenCurve const& golden, GoldenComparison const& run);

} // namespace trainstone
