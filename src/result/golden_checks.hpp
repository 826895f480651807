#pragma once

// The comparison of a run with a golden curve. Owns the checks, and the bounds of curves without bounds of their own.

#include "result/golden.hpp"
#include "train/verification/check.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace trainstone {

/// Whether matrix products round their inputs.
enum class Products {
  exact,  ///< fp32
  rounded ///< 16-bit storage, or fp32 that is rounded before it is multiplied
};

/// Bounds for differences between processors, strategies and numbers of ranks that are all correct. Training amplifies
/// such differences.
GoldenBounds golden_bounds(Products products);

/// Relative, on the mean of the last steps.
inline constexpr std::int64_t golden_last_steps = 10;
inline constexpr double golden_last_bound = 2e-2;

/// The values of a run that a golden curve also has.
struct GoldenComparison {
  std::span<double const> losses;
  EarlySteps const& early;
  Products products = Products::exact;
  bool may_stop_early = false;  ///< data.stop_loss
  bool is_bf16_of_fp32 = false; ///< the run stores bf16, and the curve is of the same deck in fp32
  bool has_norms = true; ///< false: some step has computed none (server.schedule = "priority"): none are compared
};

/// Makes the check "loss-curve", and, if the curve has the values, "gradient-norms" and "parameter-changes". A check
/// fails if the run does not know the values. If products round their inputs, the curve's own bounds apply only if they
/// are wider. Its bounds of bf16 take the place of both.
std::vector<Check> compare_with_golden(GoldenCurve const& golden, GoldenComparison const& run);

} // namespace trainstone
