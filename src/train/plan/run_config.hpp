#pragma once

// Everything that a deck decides, as the plain structs that the layers declare. A value; deck/deck.hpp fills it.

#include "comm/schedule/config.hpp"
#include "kernels/common/config.hpp"
#include "model/config.hpp"
#include "parallel/plan/config.hpp"
#include "train/plan/config.hpp"

#include <cstdint>
#include <numeric>

namespace trainstone {

struct RunConfig {
  ClassConfig benchmark_class;
  GptConfig model;
  GptOptions model_options;
  ModelSetup model_setup;
  DataConfig data;
  RunLength length;
  BatchConfig batch;
  PrecisionConfig precision;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  ParallelConfig parallel;
  CommConfig comm;
  KernelConfig kernels;
  BenchConfig bench;
  FaultConfig faults;
  CheckpointConfig checkpoint;
  TraceConfig trace;
  /// No key: of a measurement. A rank computes what the first one of so many tensor ranks does, and brings nothing
  /// together. Read if the mesh has none.
  std::int64_t tensor_ranks_alone = 1;
  std::int64_t feature_ranks_alone = 1; ///< the same of ranks that share features
};

/// The batch of a validation: that of a step, in micro-batches of their own. The batch is resolved.
inline BatchConfig held_out_batch(RunConfig const& config) {
  BatchConfig batch = config.batch;
  if (config.data.validation_micro == 0) return batch;
  batch.micro = config.data.validation_micro;
  batch.accumulation = config.batch.micro * config.batch.accumulation / batch.micro;
  return batch;
}

/// Whether the time of steps is not that of this machine: a network is emulated, or a fault that costs or saves time is
/// injected.
inline bool emulates_time(RunConfig const& config) {
  FaultConfig const& faults = config.faults;
  return config.comm.emulated_network().is_slow() || faults.delay_time > 0 || faults.overflow_step > 0 ||
         faults.slow_factor > 1 || faults.extra_message || faults.has_pace();
}

/// Where workers do not wait for each other: after how many steps they do, because held-out losses are measured or
/// checkpoints written. 0: at the end.
inline std::int64_t steps_between_pauses(RunConfig const& config) {
  return std::gcd(config.data.has_validation() ? config.data.validate_every : 0,
                  config.checkpoint.writes() ? config.checkpoint.every_steps : 0);
}

} // namespace trainstone
