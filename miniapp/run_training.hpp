#pragma once

// The training of a run: its steps, validations, comparisons and checkpoints in order, and their counters.

#include "run_checkpoints.hpp"
#include "run_result.hpp"

namespace trainstone {

/// Trains from the start that `checkpoints` gives to the end, to a low enough held-out loss, or until a rank asks to
/// stop. Collective. \param[in] listener  hears of a step before the checkpoint after it is written
Training train(Trainer& trainer, PreparedRun const& run, RunCheckpoints& checkpoints, MemoryLedger const& ledger,
               StepListener const& listener);

} // namespace trainstone
