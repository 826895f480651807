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

/// Rank 0 and the ranks of its line of the pipeline whose stages are the first ones of their kind. Stages are of a kind
/// if they have the same parts, which keep and compute again the same. Of these the first one keeps the activations of
/// most micro-batches.
std::vector<Rank> first_of_kinds(ResolvedRun const& run);

/// The plan of the rank that needs most memory, as plan_memory() plans it: of ranks of first_of_kinds(), because a
/// search plans very many runs. \throws as plan_run does
RunPlan plan_largest(ResolvedRun const& run);

} // namespace trainstone
