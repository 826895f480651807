#pragma once

// The training of a run: its steps, validations, comparisons and checkpoints in order, and what was counted of them.

#include "run_checkpoints.hpp"
#include "run_result.hpp"

namespace trainstone {

/// From where the checkpoints say to the end, to a low enough held-out loss, or to where a rank asks to stop.
/// Collective. \param[in] listener  hears of a step before the checkpoint after it is written
Training train(Trainer& trainer, PreparedRun const& run, RunCheckpoints& checkpoints, MemoryLedger const& ledger,
               StepListener const& listener);

} // namespace trainstone
