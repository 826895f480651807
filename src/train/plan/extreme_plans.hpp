#pragma once

// The plans that `estimate` prints: the plan of the rank that needs most memory, and the plan of the rank that sends
// most. Plans, without MPI.

#include "train/plan/run_plan.hpp"

namespace trainstone {

struct ExtremePlans {
  RunPlan largest; ///< needs most memory; of several the first
  RunPlan busiest; ///< sends most bytes per step, control traffic included; of several that with most messages
};

/// \throws as plan_run does
ExtremePlans plan_extremes(RunConfig const& config, Topology const& topology);

/// The same ranks, with what plan_traffic() plans.
ExtremePlans plan_extreme_traffic(ResolvedRun const& run);

/// The plan of the rank that needs most memory, as plan_memory() plans it. \throws as plan_run does
RunPlan plan_largest(ResolvedRun const& run);

} // namespace trainstone
