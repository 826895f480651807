#pragma once

// From a finished training to what is reported: times merged over ranks, amounts predicted and counted, rates, the
// speed floor. Does not print.

#include "run_setup.hpp"

#include "report/result.hpp"
#include "train/early_steps.hpp"
#include "train/run_verification.hpp"

#include <vector>

namespace trainstone {

/// What training did, in the order in which it happened.
struct Training {
  std::vector<StepReport> samples;
  std::vector<double> losses; ///< of all steps, those before a restart included
  EarlySteps early;           ///< of all steps
  CountedRun counted;
  Traffic step_sent; ///< counted in all steps together, without validation
  std::uint64_t step_flops = 0;
  std::uint64_t step_launches = 0;
  KernelTable kernels;  ///< of the measured steps, if they are timed one by one
  bool stopped = false; ///< before its end, because a rank asked to
};

/// What this process sent so far, for training and control.
Traffic total_sent(CommCounters const& counted);
Traffic difference(Traffic const& later, Traffic const& earlier);

/// Bytes of all ranks, seconds of the one that spent most. Collective.
FileReads reads_of_all(FileReads const& own, RankContext& context);

/// Rates of all ranks together, measured by all at once, of products in the plan's precision; none where ranks share
/// processors: what each gets while the others wait adds up to more than there is. Collective.
PeakInfo measure_peaks(RankContext& context, PreparedRun const& run);

/// The same of any products, without asking whether processors are shared. Collective.
/// \param[in] sharing  ranks that share this rank's memory
PeakInfo sum_peaks(RankContext& context, GemmChoice const& gemm, ModelStorage const& storage, std::size_t sharing);

/// What is known before the training.
Result begin_result(PreparedRun const& run, RankContext const& context, PeakInfo const& peaks);

/// Adds what the training gave: samples with times merged over the ranks, amounts, rates. Collective.
void finish_result(Result& result, PreparedRun const& run, Training training, RankContext& context);

/// Of this build.
CodeInfo code_info();

/// Amounts per step, predicted for this rank.
WorkAmounts predicted_amounts(RunPlan const& plan);

/// The same with the largest bytes and messages over all ranks: control traffic differs between them; and with the
/// memory of the rank that needs most. Collective.
WorkAmounts busiest_rank(WorkAmounts amounts, RankContext& context);

} // namespace trainstone
