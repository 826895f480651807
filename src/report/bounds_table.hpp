#pragma once

// The roofline of a planned step: for every kernel what it computes and moves, and the least time that this takes at
// given peaks. Pure functions of a plan. Measures nothing.

#include "train/plan/resolved_run.hpp"
#include "train/plan/run_plan.hpp"
#include "train/plan/step_prediction.hpp"

#include <string>
#include <vector>

namespace trainstone {

/// All launches of one kernel in a step of a rank.
struct BoundedKernel {
  std::string name; ///< of a product "qkv forward"; "update": all kernels of it
  std::uint64_t launches = 0;
  PhaseWork work = {};
  double seconds = 0;    ///< the least time at the peaks
  char const* peak = ""; ///< that bounds it: "gemm" or "bandwidth"
};

/// Of the model and of the update, the longest first. Kernels that add up gradients over ranks and micro-batches, the
/// norm and the sum of losses are not among them. \param[in] one  rates of one rank
std::vector<BoundedKernel> bounded_kernels(ResolvedRun const& run, RunPlan const& plan, ComputeRates const& one);

/// A line per kernel and one of all, each with its end. \param[in] tokens  of a step, of all ranks
std::string bounds_text(std::vector<BoundedKernel> const& kernels, ComputeRates const& one, std::int64_t tokens);

} // namespace trainstone
