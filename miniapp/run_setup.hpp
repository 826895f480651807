#pragma once

// A run before its first large allocation: deck, plan, opened data, golden curve, the checkpoint to go on from. Every
// mistake of the user is found here.

#include "commands.hpp"

#include "core/clock.hpp"
#include "core/folder_lock.hpp"
#include "deck/benchmark_class.hpp"
#include "result/golden_checks.hpp"
#include "result/rank_map.hpp"
#include "result/result.hpp"
#include "run_checkpoints.hpp"
#include "run_choices.hpp"
#include "stop_signals.hpp"
#include "train/data/training_data.hpp"
#include "train/plan/run_plan.hpp"
#include "train/plan/served_run.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// A value that is complete when the training begins. Afterwards only its checkpoints change.
struct PreparedRun {
  SteadyTime begin;                     ///< of the program's work
  std::unique_ptr<StopSignals> signals; ///< handled as long as the run lives
  std::optional<FolderLock> output;     ///< on the output folder, of the first rank
  Deck deck;
  ResolvedRun resolved;
  std::vector<ChosenAlgorithm> chosen; ///< collectives of `resolved` that were measured
  std::vector<std::string> notes;      ///< how choices were made, for the output
  std::unique_ptr<TrainingData> data;
  Rank rank = 0;                         ///< of all
  std::optional<ResolvedRun> one_worker; ///< what this rank trains, where workers do not wait for each other
  std::unique_ptr<RunPlan> plan;         ///< of that
  std::vector<Rank> neighbours;  ///< the ranks on this rank's machine, itself included, whatever nodes are emulated
  std::vector<Rank> sharers;     ///< of these, the ranks on this rank's device; all, where kernels run on the host
  int devices_per_node = 0;      ///< that ranks use; 0: kernels run on the host
  std::vector<RankPlace> places; ///< of all ranks
  std::string golden_key;
  std::string reference_key; ///< of what the run is compared with: golden_key, or that of the same deck in fp32
  std::string golden_digest; ///< of the golden file
  std::optional<GoldenCurve> golden;
  std::optional<GoldenFirstStep> first_step; ///< where there is no curve
  std::unique_ptr<RunCheckpoints> checkpoints;
  MeasuredWindow window; ///< of the steps after the checkpoint
  ClassJudgement judgement;
  Check collectives_exact; ///< on these ranks, before the training
  PeakInfo peaks;          ///< measure_peaks()

  RunConfig const& config() const { return resolved.config; }
  /// What the plan is of.
  ResolvedRun const& planned() const { return one_worker ? *one_worker : resolved; }
  Products products() const;
  /// Whether the first step is compared. It is not if products round fp32 inputs, because the bound of the reference
  /// does not allow for that. Nor is it if parameters do not begin with the seed's.
  bool compares_first_step() const {
    return first_step && products() == Products::exact && config().model_setup.load.empty();
  }
  bool compares_first_update() const { return compares_first_step() && first_step->update; }
};

/// The run as it is chosen, planned and checked, without its checkpoints and what follows from them. The first rank
/// also scans the data and makes the output folder.
/// \param[in] deck  read, and resolved as `chosen`
/// \throws InputError, or Error with ExitCode::does_not_fit
PreparedRun plan_and_check(RunOptions const& options, Deck const& deck, ChosenRun const& chosen,
                           Placement const& placement, Rank rank);

/// "4 threads of all ranks on this machine share 2 cores", "2 ranks share a device": then rates that ranks measure one
/// by one add up to more than the machine has. Threads of kernels or threads of libraries count, whichever are more.
/// Empty if every thread has its own core, or every rank its own device.
std::string shared_processors(PreparedRun const& run, ExecutionSpace const& exec);
/// The text of the first machine of the run with such ranks. Collective.
std::string any_shared_processors(PreparedRun const& run, RankContext const& context);

/// Checks that all ranks have prepared the same run: same resolved deck, chosen algorithms, steps,
/// numbers of samples and golden file. Collective.
/// \throws CollectiveError (exit 64) naming a rank that differs, for example because the launcher does not pass on
/// TRAINSTONE_SET, or because files differ between nodes
void require_same_run(PreparedRun const& run, Communicator const& communicator);

} // namespace trainstone
