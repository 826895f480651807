#pragma once

// Predicts times of a step from the rates of a machine. The floor, which a run prints beside its median, is the least
// time of a step under any strategy. A step is predicted from the times of its parts, by the timeline of its program.
// Without such times, the predicted step computes at the peaks and hides no communication. Pure functions of a plan.
// Measures nothing.

#include "comm/simulation/machine_model.hpp"
#include "parallel/program/part_times.hpp"
#include "parallel/program/step_prices.hpp"
#include "parallel/program/step_timeline.hpp"
#include "train/plan/run_plan.hpp"

#include <map>
#include <string>

namespace trainstone {

/// Peaks of one rank, or of all ranks together.
struct ComputeRates {
  double gemm_flops_per_second = 0;
  double bandwidth_bytes_per_second = 0;
};

/// The least time of a step on the peaks, in s. It is the time of all ranks' GEMM operations at the GEMM rate plus the
/// time of an update in place at the bandwidth. An update reads the gradient, reads and writes moments and master copy
/// (or fp32 parameter) in fp32, and writes 16-bit parameters. \param[in] all  rates of all ranks together
double floor_seconds(RunPlan const& plan, OptimizerConfig const& optimizer, ComputeRates const& all);

/// Of a rank's update, as the optimizer's kernels declare it.
PhaseWork update_work(RunPlan const& plan, OptimizerConfig const& optimizer);

struct StepPrediction {
  double compute_seconds = 0;       ///< products of a rank, and the update of the rank that updates most
  double communication_seconds = 0; ///< of the rank, its messages one after the other
  double total() const { return compute_seconds + communication_seconds; }
};

/// \param[in] busiest    plan of the rank that sends most  \param[in] one  rates of one rank
/// \param[in] computing  plan of a rank with products: the same one, unless a server sends most
/// \param[in] machine    prices messages by their mean size in each row of the plan's traffic, and sums by their bytes
/// \param[in] network    emulated, if it is slow: no message takes less than there
StepPrediction predict_step(RunPlan const& busiest, RunPlan const& computing, OptimizerConfig const& optimizer,
                            ComputeRates const& one, MachineModel const& machine, EmulatedNetwork const& network = {});

/// What the parts of a stage take at the peaks: every kernel its FLOPs at the GEMM rate or its bytes at the bandwidth,
/// whichever is longer, and work on gradients and parameters its bytes at the bandwidth. Loading data and agreeing on
/// losses take nothing. \param[in] plan  of any rank of a stage     \param[in] one  rates of one rank
PartTimes parts_at_peaks(ResolvedRun const& run, RunPlan const& plan, ComputeRates const& one);

/// Everything in a deck that the times of parts depend on, by name, as text. Not the number of blocks, and nothing of
/// ranks.
std::map<std::string, std::string> part_conditions(RunConfig const& config);

/// What the instructions of a run take. Cores communicate themselves if kernels run on the host.
/// \param[in] stages   plan_stages() of a run; without a pipeline, the plan of any rank
/// \param[in] parts    measured under the conditions of the plan; must outlive the object, as must the plans
/// \param[in] machine  prices collectives
/// \param[in] files    price what is read for gathers, if shares of parameters lie in a file
/// \param[in] memory   of the same machine and network, if several runs are predicted
StepPrices step_prices(std::vector<RunPlan> const& stages, PartTimes const& parts, MachineModel const& machine,
                       EmulatedNetwork const& network, OffloadRates const& files = {}, PriceMemory* memory = nullptr);

/// As above. \throws Error if a part has no times
StepTimeline predict_timeline(std::vector<RunPlan> const& stages, PartTimes const& parts, MachineModel const& machine,
                              EmulatedNetwork const& network, Entries entries = Entries::no,
                              OffloadRates const& files = {}, PriceMemory* memory = nullptr);

} // namespace trainstone
