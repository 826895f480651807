#pragma once

// A Trainer on tokens that depend on batch, micro-batch and place only, with all that it refers to.

#include "core/random.hpp"
#include "support/world.hpp"
#include "train/planned_trainer.hpp"

namespace trainstone::test {

inline RunConfig training_config(GptConfig const& model, BatchConfig const& batch) {
  RunConfig config;
  config.model = model;
  config.data.sequence = model.context - 1;
  config.batch = batch;
  config.optimizer.learning_rate = 1e-2;
  config.schedule = {ScheduleType::constant, 0, 1.0};
  return config;
}

/// Tokens that depend on (batch, micro-batch, place) only.
inline TrainingBatches training_batches(Index vocab) {
  auto const source = [vocab](std::int64_t batch, Index micro_batch, std::span<std::int32_t> inputs,
                              std::span<std::int32_t> targets) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      auto const index = (static_cast<std::uint64_t>(batch) * 64 + static_cast<std::uint64_t>(micro_batch)) * 4096 + i;
      auto const token = random_block(3, RandomStream::tests, index).words[0] % static_cast<std::uint32_t>(vocab);
      inputs[i] = static_cast<std::int32_t>(token);
      targets[i] = static_cast<std::int32_t>((token * 3 + 1) % static_cast<std::uint32_t>(vocab));
    }
  };
  return {source, source, 2};
}

/// The buffers of auto are decided as a run does.
inline ResolvedRun resolved_on(Communicator const& communicator, RunConfig const& config) {
  MachineChoices machine;
  if (config.comm.buffers == "auto") machine.buffers = usual_buffers(communicator, ExecutionSpace());
  return resolve_run(config, communicator.topology(), machine);
}

struct TrainingRun : PlannedTrainer {
  TrainingRun(Communicator& communicator, RunConfig const& config)
      : PlannedTrainer(ExecutionSpace(), communicator, resolved_on(communicator, config),
                       training_batches(config.model.vocab), 10) {}

  ExecutionSpace exec;
};

} // namespace trainstone::test
