#pragma once

// The training of a run: its steps, validations, comparisons and checkpoints in order, and their counters.

#include "run_outputs.hpp"
#include "run_result.hpp"

#include "parallel/servers/recorded_pushes.hpp"
#include "train/asynchronous_training.hpp"

#include <memory>

namespace trainstone {

/// What a run holds from its first large allocation until its last file is written. Refers to the prepared run.
struct RunMemory {
  RunMemory(PreparedRun const& run, RankContext& context);

  MemoryLedger ledger;
  RunOutputs outputs;
  ServerPolicy policy;
  std::optional<RecordedPushes> recorded;             ///< of the training before a restart
  std::unique_ptr<AsynchronousTraining> asynchronous; ///< where workers do not wait for each other
  std::unique_ptr<Trainer> synchronous;               ///< where they do

  Trainer& trainer() { return asynchronous ? asynchronous->trainer() : *synchronous; }
  /// Between steps: who have the whole model among them, rank 0 the same; null on other ranks. Their engines meet.
  Communicator const* holders(Communicator const& all) {
    return asynchronous ? asynchronous->meet_whole_state() : &all;
  }
};

/// What was counted since the training began.
void note_counters(Training& training, PreparedRun const& run, RunMemory const& memory);

/// Whether held-out losses are measured after this step.
bool validates_after(std::int64_t step, PreparedRun const& run);

/// Whether this held-out loss ends the training.
bool is_low_enough(double held_out, std::int64_t step, PreparedRun const& run);

/// Trains from the start that the run's checkpoints give to the end, to a low enough held-out loss, or until a rank
/// asks to stop. Collective. \param[in] listener  hears of a step before the checkpoint after it is written
Training train_steps(PreparedRun const& run, RunMemory& memory, StepListener const& listener);

} // namespace trainstone
