#include "deck/deck_checks.hpp"

#include "core/plural.hpp"
#include "model/part.hpp"
#include "parallel/plan/strategies.hpp"
#include "parallel/plan/tensor_problems.hpp"
#include "train/injected_delay.hpp"
#include "train/pace.hpp"

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

using Problem = std::optional<ConfigProblem>;

Problem source_problem(RunConfig const& config) {
  DataConfig const& data = config.data;
  bool const synthetic = data.source == DataSource::synthetic;
  if (synthetic && !data.files.empty()) {
    return problem("data.files", "data.files must be empty for data.source = \"synthetic\"");
  }
  if (synthetic && !data.validation_files.empty()) {
    return problem("data.validation_files", "data.validation_files must be empty for data.source = \"synthetic\"; "
                                            "data.validation_fraction holds out a part");
  }
  if (!synthetic && data.files.empty()) {
    return problem("data.files", "data.files is empty: name at least one file, or set data.source = \"synthetic\"");
  }
  bool const is_hash =
      data.xxhash.size() == 16 && data.xxhash.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!data.xxhash.empty() && !is_hash) {
    return problem("data.xxhash", "data.xxhash = \"{}\" must be 16 hexadecimal digits in lower case (xxhsum -H3)",
                   data.xxhash);
  }
  if (synthetic && !data.xxhash.empty()) {
    return problem("data.xxhash", "data.xxhash must be empty for data.source = \"synthetic\", which has no files");
  }
  if (data.source == DataSource::text && config.model.vocab < 256) {
    return problem("model.vocab",
                   "model.vocab = {} is too small for data.source = \"text\", whose tokens are bytes; "
                   "nearest legal value: 256",
                   config.model.vocab);
  }
  if (data.sequence > config.model.context) {
    return problem("data.sequence", "data.sequence = {} exceeds model.context = {}; nearest legal value: {}",
                   data.sequence, config.model.context, config.model.context);
  }
  return std::nullopt;
}

Problem gemm_problem(RunConfig const& config) {
  if (config.kernels.gemm != gemm_measured || config.parallel.reduction != ReductionMode::ordered) return std::nullopt;
  return problem("kernels.gemm", "kernels.gemm = \"measured\" may give other bits on another day: parallel.reduction = "
                                 "\"ordered\" takes \"auto\" or a provider by name");
}

Problem graphs_problem(RunConfig const& config) {
  if (!config.kernels.graphs || config.model_options.dropout == 0) return std::nullopt;
  return problem("kernels.graphs",
                 "kernels.graphs = true starts kernels again that have the arguments of an earlier step, "
                 "and with model.dropout every step has other masks: leave out one of the two");
}

Problem validation_problem(RunConfig const& config) {
  DataConfig const& data = config.data;
  if (!data.validation_files.empty() && data.validation_fraction > 0) {
    return problem("data.validation_fraction",
                   "data.validation_files and data.validation_fraction exclude each other: give one of them");
  }
  if (data.has_validation()) {
    if (config.length.stop_loss > 0 && data.validate_every == 0) {
      return problem("data.stop_loss", "data.stop_loss needs the held-out loss during the training: "
                                       "set data.validate_every to at least 1");
    }
    return std::nullopt;
  }
  char const* const missing = "held-out data: give data.validation_files or data.validation_fraction";
  if (data.validate_every > 0) return problem("data.validate_every", "data.validate_every needs {}", missing);
  if (data.validation_batches > 0)
    return problem("data.validation_batches", "data.validation_batches needs {}", missing);
  if (data.validation_micro > 0) return problem("data.validation_micro", "data.validation_micro needs {}", missing);
  if (config.length.stop_loss > 0) return problem("data.stop_loss", "data.stop_loss needs {}", missing);
  return std::nullopt;
}

Problem length_problem(RunConfig const& config) {
  RunLength const& length = config.length;
  if (length.steps > 0 && length.epochs > 0) {
    return problem("data.epochs", "data.steps = {} and data.epochs = {} exclude each other: give one of them",
                   length.steps, length.epochs);
  }
  if (length.steps == 0 && length.epochs == 0) {
    return problem("data.steps", "give the length of the training: data.steps or data.epochs");
  }
  if (length.epochs > 0 && config.data.source == DataSource::synthetic) {
    return problem("data.epochs", "data.epochs needs files: data.source = \"synthetic\" has no end; give data.steps");
  }
  return length.steps > 0 ? find_length_problem(config, length.steps) : std::nullopt;
}

Problem precision_problem(RunConfig const& config) {
  PrecisionConfig const& precision = config.precision;
  bool const small = precision.recipe != RecipeName::fp32 && precision.storage == Storage::fp16;
  if (small && precision.loss_scale == LossScaling::none)
    return problem("precision.storage", "precision.storage = \"fp16\" needs a loss scale, for gradients vanish below "
                                        "6e-8: set precision.loss_scale = \"dynamic\", or take \"bf16\"");
  double const scale = precision.initial_loss_scale, below = std::exp2(std::floor(std::log2(scale)));
  if (scale != below)
    return problem("precision.initial_loss_scale",
                   "precision.initial_loss_scale = {} is no power of two; nearest legal values: {} or {}", scale, below,
                   2 * below);
  return std::nullopt;
}

Problem recompute_problem(RunConfig const& config) {
  std::vector<Recompute> const& values = config.model_options.recompute;
  auto const count = std::ssize(values);
  if (count > 1 && count != config.model.layers)
    return problem(
        "memory.recompute",
        "memory.recompute has {}, and the model has {}; nearest legal values: one value for all blocks, or {}",
        plural(count, "value"), plural(config.model.layers, "block"), plural(config.model.layers, "value"));
  bool const selects = std::ranges::find(values, Recompute::selective) != values.end();
  if (selects && config.model_options.attention == AttentionKind::flash)
    return problem("memory.recompute",
                   "memory.recompute = \"selective\" computes probabilities again, which model.attention = \"flash\" "
                   "never keeps; nearest legal values: \"none\" or \"full\"");
  return std::nullopt;
}

Problem unit_problem(RunConfig const& config) {
  std::int64_t const unit = config.parallel.unit, layers = config.model.layers;
  if (unit <= layers) return std::nullopt;
  return problem("parallel.unit", "parallel.unit = {} exceeds model.layers = {}; nearest legal value: {}", unit, layers,
                 layers);
}

Problem overflow_problem(RunConfig const& config) {
  if (config.faults.overflow_rank == 0 || config.faults.overflow_step > 0) return std::nullopt;
  return problem("faults.overflow.rank", "faults.overflow.rank needs faults.overflow.step, counted from 1");
}

Problem fault_problem(RunConfig const& config) {
  FaultConfig const& faults = config.faults;
  if (faults.nan_step == 0 && faults.nan_part.empty()) return std::nullopt;
  if (faults.nan_part.empty()) return problem("faults.nan.step", "faults.nan.step needs faults.nan.unit");
  if (faults.nan_step == 0) return problem("faults.nan.unit", "faults.nan.unit needs faults.nan.step, counted from 1");
  std::vector<Part> const all = parts(config.model.layers);
  bool const known = std::ranges::any_of(all, [&](Part part) { return to_string(part) == faults.nan_part; });
  if (!known) {
    return problem("faults.nan.unit",
                   "faults.nan.unit = \"{}\" is no part of the model: embed, attention 0, mlp 0 to mlp {}, head",
                   faults.nan_part, config.model.layers - 1);
  }
  return std::nullopt;
}

Problem order_fault_problem(RunConfig const& config) {
  FaultConfig const& faults = config.faults;
  if (faults.order_step == 0 && faults.order_rank < 0) return std::nullopt;
  if (faults.order_step == 0)
    return problem("faults.order.rank", "faults.order.rank needs faults.order.step, counted from 1");
  if (faults.order_rank < 0)
    return problem("faults.order.step", "faults.order.step needs faults.order.rank, counted from 0");
  if (config.comm.check_order) return std::nullopt;
  return problem("faults.order.step",
                 "faults.order.step makes rank {} call another collective than the others, and all would wait for "
                 "ever: it needs comm.check_order = true",
                 faults.order_rank);
}

Problem measurement_problem(RunConfig const& config) {
  if (!config.bench.pipeline || config.parallel.pipeline > 1) return std::nullopt;
  return problem("bench.pipeline",
                 "bench.pipeline = true measures the idle time of a pipeline's stages: it needs parallel.pipeline "
                 "above 1");
}

} // namespace

std::optional<ConfigProblem> find_length_problem(RunConfig const& config, std::int64_t steps) {
  auto const exceeds = [&](char const* key, std::int64_t value) {
    std::string const length =
        config.length.steps > 0 ? fmt::format("data.steps = {}", steps) : fmt::format("the training's {} steps", steps);
    return problem(key, "{} = {} exceeds {}; nearest legal value: {}", key, value, length, steps);
  };
  if (config.schedule.warmup > steps) return exceeds("optimizer.warmup", config.schedule.warmup);
  if (config.faults.nan_step > steps) return exceeds("faults.nan.step", config.faults.nan_step);
  if (config.faults.overflow_step > steps) return exceeds("faults.overflow.step", config.faults.overflow_step);
  if (config.faults.order_step > steps) return exceeds("faults.order.step", config.faults.order_step);
  return std::nullopt;
}

std::optional<ConfigProblem> find_size_problem(RunConfig const& config) {
  // In floating point, and rounded up generously: the exact numbers are the plan's, which counts in integers. A stage
  // may have all blocks, a tensor rank has its share of each.
  auto const layers = static_cast<double>(config.model.layers), channels = static_cast<double>(config.model.channels);
  auto const heads = static_cast<double>(config.model.heads), vocab = static_cast<double>(config.model.padded_vocab());
  auto const sequence = static_cast<double>(config.data.sequence),
             rows = static_cast<double>(std::max(config.batch.micro, config.data.validation_micro)) * sequence;
  double const weights = 12 * layers * channels * channels + vocab * channels;
  double const bytes = 4 * rows * (layers * (32 * channels + heads * sequence) + vocab + 16 * channels);
  double const flops = static_cast<double>(config.batch.accumulation) * rows *
                       (6 * weights + 12 * layers * sequence * channels) /
                       static_cast<double>(std::max<std::int64_t>(1, config.parallel.tensor));
  double const tokens = static_cast<double>(config.batch.global) * sequence;
  constexpr double limit = 4e18; // below 2^62
  if (bytes < limit && flops < limit && tokens < limit) return std::nullopt;
  return problem(
      "batch.micro",
      "a step of about {:.0e} bytes and {:.0e} FLOP per rank and {:.0e} tokens is too large to be counted in "
      "64 bits: reduce the batch, data.sequence or the model",
      bytes, flops, tokens);
}

std::optional<ConfigProblem> find_held_out_problem(RunConfig const& config) {
  constexpr char const* key = "data.validation_micro";
  std::int64_t const micro = config.data.validation_micro, samples = config.batch.micro * config.batch.accumulation;
  if (micro == 0 || micro == config.batch.micro) return std::nullopt;
  if (samples % micro != 0)
    return problem(key,
                   "{} = {} does not divide the {} samples that a rank has of a global batch; nearest legal values: {}",
                   key, micro, samples, nearest_divisors(samples, micro));
  ParallelConfig const& parallel = config.parallel;
  StrategyRow const& row = row_of(parallel.strategy);
  std::string const other = row.main_device             ? "a main device, which sends out micro-batches"
                            : is_asynchronous(parallel) ? "workers that do not wait for each other"
                            : parallel.pipeline > 1     ? "stages"
                            : parallel.slices() > 1     ? "tensor ranks, or slices"
                            : parallel.features() > 1   ? "ranks that share features"
                                                        : "";
  if (!other.empty())
    return problem(key, "{} = {}: with {} validations have the micro-batches of the training; nearest legal value: {}",
                   key, micro, other, config.batch.micro);
  std::int64_t const rows = micro * config.data.sequence, chunks = config.model_options.loss_chunks;
  if (rows % chunks == 0) return std::nullopt;
  return problem(key, "{} = {}: memory.loss_chunks = {} does not divide its {} rows; nearest legal value: {}", key,
                 micro, chunks, rows, config.batch.micro);
}

std::optional<ConfigProblem> find_chunks_problem(RunConfig const& config) {
  std::int64_t const chunks = config.model_options.loss_chunks;
  std::int64_t const sequence = config.data.sequence > 0 ? config.data.sequence : config.model.context;
  std::int64_t const rows = config.batch.micro * sequence;
  if (rows % chunks == 0) return std::nullopt;
  return problem("memory.loss_chunks",
                 "memory.loss_chunks = {} does not divide the {} rows of a micro-batch (batch.micro x data.sequence); "
                 "nearest legal values: {}",
                 chunks, rows, nearest_divisors(rows, chunks));
}

std::optional<ConfigProblem> find_problem(RunConfig const& config) {
  if (Problem found = find_problem(config.model)) return found;
  if (Problem found = source_problem(config)) return found;
  if (Problem found = validation_problem(config)) return found;
  if (Problem found = length_problem(config)) return found;
  if (Problem found = find_network_problem(config)) return found;
  if (Problem found = find_buffers_problem(config)) return found;
  if (Problem found = find_asynchronous_problem(config)) return found;
  if (Problem found = find_priority_problem(config)) return found;
  if (Problem found = find_delay_problem(config.faults)) return found;
  if (Problem found = find_pace_problem(config.faults)) return found;
  if (Problem found = find_grid_problem(config.parallel)) return found;
  if (Problem found = gemm_problem(config)) return found;
  if (Problem found = graphs_problem(config)) return found;
  if (Problem found = precision_problem(config)) return found;
  if (Problem found = recompute_problem(config)) return found;
  if (Problem found = unit_problem(config)) return found;
  if (Problem found = overflow_problem(config)) return found;
  if (Problem found = order_fault_problem(config)) return found;
  if (Problem found = measurement_problem(config)) return found;
  return fault_problem(config);
}

} // namespace trainstone
