#pragma once

// Everything that a deck decides, as the plain structs that the layers declare. A value; report/deck.hpp fills it.

#include "comm/config.hpp"
#include "kernels/config.hpp"
#include "model/config.hpp"
#include "parallel/config.hpp"
#include "train/config.hpp"

namespace trainstone {

struct RunConfig {
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
};

/// Whether steps do not take as long as they would on this machine: a network is emulated, or a delay or an overflow is
/// injected.
inline bool emulates_time(RunConfig const& config) {
  return config.comm.emulated_network().is_slow() || config.faults.delay_time > 0 || config.faults.overflow_step > 0;
}

} // namespace trainstone
