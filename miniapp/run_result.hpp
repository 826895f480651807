#pragma once

// The record of a training, and the result that is made of it: times merged over ranks, predicted and counted amounts,
// rates, the speed floor. Does not print.

#include "run_setup.hpp"

#include "result/result.hpp"
#include "train/early_steps.hpp"
#include "train/verification/push_checks.hpp"
#include "train/verification/run_verification.hpp"

#include <optional>
#include <vector>

namespace trainstone {

/// What servers did for workers that do not wait for each other.
struct ServedTraining {
  explicit ServedTraining(ServerPolicy const& of) : policy(of), walk(of.workers) {}

  ServerPolicy policy;
  std::vector<ServerRecord> parts;   ///< of the record, from pause to pause
  std::size_t before = 0;            ///< how many of these came before a restart
  RecordWalk walk;                   ///< through all of them
  std::vector<std::uint64_t> hashes; ///< of the parameters of every worker, at the end
};

/// The record of a training, in the order in which it happened.
struct Training {
  std::vector<StepReport> samples;
  std::vector<double> losses; ///< of all steps, those before a restart included
  EarlySteps early;           ///< of all steps
  CountedRun counted;
  Traffic step_sent; ///< counted in all steps together, without validation
  std::uint64_t step_flops = 0;
  std::uint64_t step_launches = 0;
  KernelTable kernels;                          ///< of the measured steps, if they are timed one by one
  std::vector<StageTimes> stages;               ///< of the measured steps, if the idle time of a pipeline is measured
  StateMoves step_gathered = {};                ///< what the gathers of all steps together moved, without validation
  std::optional<FilesOfRanks> state_files = {}; ///< none: no state lies in files
  double offload_seconds = 0;    ///< of all steps, in which updates and gathers waited for files of state
  double file_seconds = 0;       ///< of all steps, in which these files were read and written
  bool stopped = false;          ///< before its end, because a rank asked to
  std::vector<Check> first_step; ///< checks of the golden first step, where it is compared
  std::optional<ServedTraining> served;
  std::optional<EnergyInfo> energy; ///< of the measured steps, where there are meters
};

/// The traffic that this process has sent so far, for training and control.
Traffic total_sent(CommCounters const& counted);
Traffic difference(Traffic const& later, Traffic const& earlier);

/// Bytes of all ranks, seconds of the one that spent most. Collective.
FileReads reads_of_all(FileReads const& own, RankContext& context);

/// Rates of all ranks together, measured by all ranks at the same time, with products in the plan's precision. No rates
/// if ranks share processors: what each rank gets while the others wait adds up to more than there is. Collective.
PeakInfo measure_peaks(RankContext& context, PreparedRun const& run);

/// As above with any products, without checking whether processors are shared. Collective.
/// \param[in] sharing  ranks that share this rank's memory
PeakInfo sum_peaks(RankContext& context, GemmChoice const& gemm, ModelStorage const& storage, std::size_t sharing);

/// The result without its judgement: what was run and where, samples with times merged over the ranks, amounts, rates.
/// Collective.
Result make_result(PreparedRun const& run, Training training, RankContext& context);

/// Of this build.
CodeInfo code_info();

/// Amounts per step, predicted for this rank.
WorkAmounts predicted_amounts(RunPlan const& plan);

/// As above, but with the largest bytes and messages over all ranks, because control traffic differs between ranks, and
/// with the memory of the rank that needs most. Collective.
WorkAmounts busiest_rank(WorkAmounts amounts, RankContext& context);

} // namespace trainstone
