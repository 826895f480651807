#pragma once

// The checks that every run makes of itself. Owns what "counted" means for a whole run and compares it with the plan,
// with ==. A figure of merit is printed only when all of them pass. All functions are collective but check_launch.

#include "comm/execution/communicator.hpp"
#include "comm/schedule/counters.hpp"
#include "core/counters.hpp"
#include "core/files_of_ranks.hpp"
#include "core/memory_plan.hpp"
#include "train/early_steps.hpp"
#include "train/plan/run_plan.hpp"
#include "train/trainer.hpp"
#include "train/verification/check.hpp"

#include <optional>

namespace trainstone {

/// The counters of a training, and the amount of work that they count.
struct CountedRun {
  std::int64_t before = 0; ///< steps of the training before a restart, of which nothing is counted
  std::int64_t steps = 0;
  std::int64_t skipped = 0;     ///< of the steps: their update
  std::int64_t checkpoints = 0; ///< written, each after a comparison of replicas
  std::int64_t validations = 0;
  std::int64_t validation_batches = 0; ///< global batches of each
  Counters kernels;                    ///< of steps and validations
  CommCounters communication;
  CategoryBytes memory;     ///< the ledger's high water
  StateMoves moves = {};    ///< of offloaded state, by updates
  StateMoves gathered = {}; ///< by gathers of steps and validations
  Traffic start = {};       ///< sent whenever the state of the training was set, in all
  std::int64_t starts = 1; ///< how often it was set: from the seed, again after a first update, from a model file, from
                           ///< a checkpoint
  std::int64_t changes = 0; ///< number of times that changes of parameters were computed
};

/// The engine's collectives move integer-valued fp32 data to the right place and add it up exactly, on all kinds of
/// blocks. Runs before the training.
Check check_collectives(ExecutionSpace const& exec, Communicator& communicator, ShardPlan const& plan);

/// The loss of the training's first sample before any update, or of its first positions, agrees with the reference
/// (model/reference_loss.hpp). `value` is the largest relative difference over all ranks, and infinite if a loss is not
/// finite.
struct FirstStepReference {
  double loss = 0;
  Index positions = 0;
};
Check check_first_step(ExecutionSpace const& exec, Communicator& communicator, Trainer& trainer,
                       FirstStepReference const& expected);

/// One update of the initial parameters is what the reference computed. A gradient is off by what fp32 brings the
/// residual stream off in forward, and by as much again in backward: its norm and sizes are held to 2 sqrt(8 L C) u.
/// The checks are "first-update" (the losses before and after it), "gradient-norms", "gradient-sizes",
/// "parameter-changes". Afterwards the training is where it was, at its beginning.
std::vector<Check> check_first_update(ExecutionSpace const& exec, Communicator& communicator, Trainer& trainer,
                                      FirstStepReference const& expected, FirstUpdate const& update);

/// The run has as many ranks as the launcher, or else the batch system, started. The check is not made if neither
/// tells.
Check check_launch(Communicator const& communicator);

/// The parameters have the same bits on all ranks, and on the stages that have copies of the token table. Each rank
/// hashes its parameters, and hashes of shares and stages are added up.
/// Parameters that one rank alone holds are part of the hash, but are not compared.
Check check_replicas(ExecutionSpace const& exec, Communicator& communicator, Trainer& trainer);

/// The parameters are finite after the last update. (Losses and norms are checked at every step.)
Check check_finite(ExecutionSpace const& exec, Communicator& communicator, Trainer& trainer);

/// What a rank sends in a training of so much work.
struct PredictedMessages {
  Traffic training = {}, control = {};
  Traffic start = {};    ///< whenever the state was set
  Traffic not_sent = {}; ///< of `training`: skipped with updates
};
PredictedMessages predicted_messages(RunPlan const& plan, CountedRun const& counted);

/// Counters and predictions agree on every rank. check_flops also compares the number of started kernels.
Check check_memory(ExecutionSpace const& exec, Communicator& communicator, RunPlan const& plan,
                   CountedRun const& counted);
Check check_messages(ExecutionSpace const& exec, Communicator& communicator, PredictedMessages const& predicted,
                     CountedRun const& counted);
inline Check check_messages(ExecutionSpace const& exec, Communicator& communicator, RunPlan const& plan,
                            CountedRun const& counted) {
  return check_messages(exec, communicator, predicted_messages(plan, counted), counted);
}
Check check_flops(ExecutionSpace const& exec, Communicator& communicator, RunPlan const& plan,
                  CountedRun const& counted);
/// Of state that lies on the host or in a file: what updates and gathers have moved. `files` is named if there are any.
Check check_moves(ExecutionSpace const& exec, Communicator& communicator, RunPlan const& plan,
                  CountedRun const& counted, std::optional<FilesOfRanks> const& files);

} // namespace trainstone
