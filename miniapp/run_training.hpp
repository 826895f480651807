#pragma once

// The training of a run: its steps, validations, comparisons and checkpoints in order, and their counters.

#include "run_outputs.hpp"
#include "run_result.hpp"

namespace trainstone {

/// What a run holds from its first large allocation until its last file is written. Refers to the prepared run.
struct RunMemory {
  RunMemory(PreparedRun const& run, RankContext& context)
      : outputs(run, context, ledger),
        trainer(context.exec, context.communicator, ledger, run.config(), *run.plan, run.data->batches(),
                run.data->steps()) {}

  MemoryLedger ledger;
  RunOutputs outputs;
  Trainer trainer;
};

/// Trains from the start that the run's checkpoints give to the end, to a low enough held-out loss, or until a rank
/// asks to stop. Collective. \param[in] listener  hears of a step before the checkpoint after it is written
Training train_steps(PreparedRun const& run, RunMemory& memory, StepListener const& listener);

} // namespace trainstone
