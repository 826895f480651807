#pragma once

// A trainer together with all that it refers to, for programs that train more than once in a process.

#include "train/plan/resolved_run.hpp"
#include "train/trainer.hpp"

#include <utility>

namespace trainstone {

struct PlannedTrainer {
  /// Gives the communicator the buffers of the run first. The communicator must outlive the object.
  /// \param[in] steps  the planned length of the training
  PlannedTrainer(ExecutionSpace const& exec, Communicator& communicator, ResolvedRun run, TrainingBatches batches,
                 std::int64_t steps, std::optional<FellowWorkers> const& fellows = {})
      : resolved(std::move(run)),
        plan(plan_run(resolved, communicator.rank())),
        trainer(exec, with_buffers(exec, communicator), ledger, resolved.config, plan, std::move(batches), steps,
                fellows) {}
  PlannedTrainer(PlannedTrainer const&) = delete;
  PlannedTrainer& operator=(PlannedTrainer const&) = delete;

  ResolvedRun const resolved;
  RunPlan const plan;
  MemoryLedger ledger;
  Trainer trainer;

private:
  Communicator& with_buffers(ExecutionSpace const& exec, Communicator& communicator) const {
    communicator.use_buffers(resolved.buffers, exec);
    return communicator;
  }
};

} // namespace trainstone
