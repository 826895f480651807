#pragma once

// The configuration of a training: data, length, batch, precision, optimizer, schedule, measurement, faults. Plain
// values without Kokkos, and the arithmetic of batches. Does not read files.

#include "core/error.hpp"
#include "model/config.hpp"
#include "parallel/plan/config.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// The class that the deck names: a benchmark class, whose values are defaults of other keys, or custom.
struct ClassConfig {
  std::string name = "custom";
};

enum class DataSource { synthetic, text, tokens };

struct DataConfig {
  DataSource source = DataSource::text;
  std::vector<std::string> files;
  std::int64_t sequence = 0; ///< tokens per sample; 0 = the model's context (a resolved configuration holds that)
  std::int64_t seed = 1;     ///< of initial values, data order and synthetic data
  std::string xxhash;        ///< XXH3 of the files' concatenated bytes, 64 bits in hexadecimal; empty = not checked
  std::vector<std::string> validation_files;
  double validation_fraction = 0;      ///< share of the samples, from the end of `files`, that is held out
  std::int64_t validate_every = 0;     ///< steps; 0 = only after the last step
  std::int64_t validation_batches = 0; ///< global batches per validation; 0 = all that the held-out data has
  std::int64_t validation_micro = 0;   ///< samples that a rank evaluates at a time; 0 = batch.micro

  bool has_validation() const { return !validation_files.empty() || validation_fraction > 0; }
};

/// Exactly one of steps and epochs is set.
struct RunLength {
  std::int64_t steps = 0;
  std::int64_t epochs = 0;
  double stop_loss = 0; ///< ends the training when the held-out loss is at most this; 0 = never
};

/// Samples per step: global = micro x accumulation x ranks. 0 = not given; resolve_batch fills it in.
struct BatchConfig {
  std::int64_t micro = 0;
  std::int64_t accumulation = 0;
  std::int64_t global = 0;
  bool operator==(BatchConfig const&) const = default;
};

enum class ScheduleType { constant, cosine };

struct ScheduleConfig {
  ScheduleType type = ScheduleType::cosine;
  std::int64_t warmup = 0;        ///< steps of linear growth from 0
  double final_lr_fraction = 0.1; ///< of the learning rate, where cosine ends
};

/// Which steps the figure of merit is taken from.
struct BenchConfig {
  std::int64_t warmup_steps = 1;
  std::int64_t window = 0; ///< steps; 0 = all after the warm-up
  bool kernels = false;    ///< every kernel of the window is timed on its own
  bool pipeline = false;   ///< the idle time of the stages of a pipeline is measured in the window
};

/// Where and when checkpoints are written, and from which checkpoint a run goes on.
struct CheckpointConfig {
  std::string folder;           ///< empty: no checkpoints
  double every = 900;           ///< s; 0: not by time
  std::int64_t every_steps = 0; ///< 0: not by steps
  std::int64_t keep = 2;
  bool on_signal = true;       ///< USR1, USR2 and TERM end the run with a checkpoint
  std::string resume = "auto"; ///< the newest usable one in `folder`; "none"; or the path of one

  bool writes() const { return !folder.empty(); }
};

struct TraceConfig {
  std::string file;                            ///< empty: no trace
  std::int64_t events = std::int64_t{1} << 20; ///< of a rank: the first ones are kept
};

/// Faults that tests inject.
struct FaultConfig {
  std::int64_t nan_step = 0;      ///< from 1; 0 = none
  std::string nan_part;           ///< "embed", "attention 3", "mlp 3" (from 0), "head": its forward output becomes NaN
  std::int64_t overflow_step = 0; ///< from 1; 0 = none: the step whose gradients overflow, on one rank
  std::int64_t overflow_rank = 0;
  std::string delay_where; ///< one of delay_places; empty = none
  double delay_time = 0;   ///< s
  std::int64_t delay_rank = -1;
  std::int64_t delay_every = 1; ///< 1: every time, 3: every third time
  std::string slow_kernel;      ///< one of slow_kernels; empty = none
  double slow_factor = 1;       ///< factor on the kernel's time
  bool extra_message = false;   ///< every step sends what no plan knows
  std::int64_t order_step = 0;  ///< from 1; 0 = none: the step in which a rank calls another collective than the others
  std::int64_t order_rank = -1; ///< the rank that calls another collective; -1 = none
  double pace_forward = 0;      ///< s that a block's forward takes at least for a micro-batch; 0 = its own time
  double pace_backward = 0;     ///< s, the same of its backward
  std::int64_t straggler_rank = -1; ///< the rank whose paced times are longer; -1 = none
  double straggler_factor = 1;      ///< factor on them
  double straggler_sigma = 0;       ///< of the logarithm of a random factor on all paced times; 0 = none
  std::int64_t straggler_seed = 1;  ///< of these factors

  bool has_pace() const { return pace_forward > 0 || pace_backward > 0; }
};

/// "6 or 9": the multiples of `step` around `wanted`, which is none itself.
inline std::string nearest_multiples(std::int64_t step, std::int64_t wanted) {
  std::int64_t const below = wanted / step * step;
  return below > 0 ? fmt::format("{} or {}", below, below + step) : fmt::format("{}", step);
}

/// The problem of a batch on this number of data ranks (parallel/plan/mesh.hpp), if there is one.
inline std::optional<ConfigProblem> find_problem(BatchConfig const& batch, std::int64_t ranks) {
  bool const has_micro = batch.micro > 0;
  bool const has_accumulation = batch.accumulation > 0;
  bool const has_global = batch.global > 0;
  if (has_micro + has_accumulation + has_global < 2) {
    return ConfigProblem{"batch.micro", "give two of batch.micro, batch.accumulation and batch.global: "
                                        "global = micro x accumulation x data ranks"};
  }
  if (!has_global) return std::nullopt;
  std::int64_t const unit = (has_micro ? batch.micro : 1) * (has_accumulation ? batch.accumulation : 1) * ranks;
  if (has_micro && has_accumulation && unit != batch.global) {
    return problem("batch.global",
                   "batch.global = {} contradicts batch.micro = {} x batch.accumulation = {} x {} data ranks; "
                   "the legal value is {}, or leave one of the three out",
                   batch.global, batch.micro, batch.accumulation, ranks, unit);
  }
  if (batch.global % unit != 0) {
    return problem("batch.global",
                   "batch.global = {} is no multiple of {} ({} x {} data ranks); nearest legal values: {}",
                   batch.global, unit, has_micro ? "batch.micro" : "batch.accumulation", ranks,
                   nearest_multiples(unit, batch.global));
  }
  return std::nullopt;
}

/// The batch with all three numbers. Throws InputError where they contradict each other.
inline BatchConfig resolve_batch(BatchConfig batch, std::int64_t ranks) {
  if (std::optional<ConfigProblem> const problem = find_problem(batch, ranks)) throw InputError(problem->message);
  if (batch.global == 0) batch.global = batch.micro * batch.accumulation * ranks;
  if (batch.micro == 0) batch.micro = batch.global / (batch.accumulation * ranks);
  if (batch.accumulation == 0) batch.accumulation = batch.global / (batch.micro * ranks);
  return batch;
}

} // namespace trainstone
