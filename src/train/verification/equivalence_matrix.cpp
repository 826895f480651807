#include "train/verification/equivalence_matrix.hpp"

#include "core/plural.hpp"
#include "core/random.hpp"
#include "parallel/engine/replica_check.hpp"
#include "parallel/plan/strategies.hpp"
#include "train/injected_delay.hpp"
#include "train/planned_trainer.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>

namespace trainstone {

namespace {

/// Small ones, but where the build has attention in 16 bits that does not take them.
std::int64_t head_size_of(RunConfig const& choices) {
  std::int64_t const usual = choices.parallel.slices() > 1 ? 3 : 8, large = 64;
  if (choices.model_options.attention == AttentionKind::materialized) return usual;
  AttentionNeed need{.batch = 1,
                     .sequence = matrix_rows_of(choices.parallel),
                     .heads = 1,
                     .head_size = large,
                     .storage = Storage::bf16,
                     .drops = choices.model_options.dropout > 0};
  AttentionProvider const provider = resolve_attention_provider(choices.kernels.attention, need);
  need.head_size = usual;
  return attention_problem(provider, need).empty() ? usual : large;
}

/// Odd everywhere: tensors begin and end inside of blocks, vectors and shares.
RunConfig config_of(MatrixRow const& row, RunConfig const& choices, Rank ranks) {
  RunConfig config;
  std::int64_t const slices = choices.parallel.slices(), rows = matrix_rows_of(choices.parallel);
  std::int64_t const heads = slices > 1 ? 8 : 3, vocab = slices > 1 ? 100 : 29;
  config.model = {row.layers, heads, heads * head_size_of(choices), rows + 1, vocab};
  config.data.sequence = rows;
  config.batch = {1, row.micro_batches / mesh_of(row.parallel, ranks).data(), row.micro_batches};
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.clip = 0.5; // acts in the first steps
  config.schedule = {ScheduleType::constant, 0, 1.0};
  config.precision.recipe = row.recipe;
  config.model_options = choices.model_options;
  config.model_options.recompute = row.recompute;
  config.kernels = choices.kernels;
  config.parallel = row.parallel;
  config.parallel.tensor_blocks = slices;
  config.comm.allreduce = config.comm.reduce_scatter = row.algorithm;
  config.comm.reduce = config.comm.tensor_allreduce = row.algorithm;
  if (row.algorithm == "shared") config.comm.all_gather = config.comm.broadcast = "shared";
  if (!row.parallel.sequence) return config;
  config.comm.tensor_reduce_scatter = row.algorithm;
  if (row.algorithm == "shared") config.comm.tensor_all_gather = "shared_push";
  return config;
}

/// Tokens that depend on (step, micro-batch, place) only.
BatchSource batch_source(std::int64_t vocab) {
  return [vocab](std::int64_t step, Index micro_batch, std::span<std::int32_t> inputs,
                 std::span<std::int32_t> targets) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      auto const place = (static_cast<std::uint64_t>(step) << 32) + (static_cast<std::uint64_t>(micro_batch) << 16) + i;
      auto const token =
          random_block(1, RandomStream::synthetic_data, place).words[0] % static_cast<std::uint32_t>(vocab);
      inputs[i] = static_cast<std::int32_t>(token);
      targets[i] = static_cast<std::int32_t>((token * 3 + 1) % static_cast<std::uint32_t>(vocab));
    }
  };
}

/// On every rank at other places.
FaultConfig faults_of(MatrixDelays delays, Rank rank) {
  FaultConfig faults;
  if (delays == MatrixDelays::none) return faults;
  bool const sends = delays == MatrixDelays::slow_sends;
  faults.delay_where = sends ? "send" : "kernel";
  faults.delay_time = 200e-6;
  faults.delay_every = (sends ? 5 : 97) + rank;
  return faults;
}

struct Variation {
  bool tiny;
  bool overlap;
  MatrixDelays delays;
};

std::vector<Variation> variations(bool quick) {
  using enum MatrixDelays;
  if (quick) return {{true, true, slow_sends}, {false, true, slow_kernels}, {true, false, none}};
  std::vector<Variation> all;
  for (bool const tiny : {false, true})
    for (bool const overlap : {false, true})
      for (MatrixDelays const delays : {none, slow_sends, slow_kernels}) all.push_back({tiny, overlap, delays});
  return all;
}

std::string describe_cut(ParallelConfig const& parallel) {
  switch (parallel.stage_cut) {
  case StageCut::even: return "even";
  case StageCut::balanced: return "balanced";
  case StageCut::listed: return fmt::format("{}", fmt::join(parallel.stages, "+"));
  }
  return "unknown";
}

/// Nothing of a model that is not cut into stages.
std::string describe_stages(MatrixRow const& row) {
  ParallelConfig const& parallel = row.parallel;
  if (row.layers != mesh_layers) return "";
  std::string const text = parallel.pipeline == 1
                               ? "1 stage"
                               : fmt::format("{} stages, {}, {}, {}", parallel.pipeline, parallel.pipeline_schedule,
                                             plural(parallel.pipeline_chunks, "chunk"), describe_cut(parallel));
  return fmt::format("{:<48} ", text);
}

/// Nothing of a model that is not cut.
std::string describe_slices(MatrixRow const& row) {
  ParallelConfig const& parallel = row.parallel;
  if (parallel.slices() == 1) return "";
  std::string const sequence = !parallel.sequence              ? ""
                               : parallel.tensor_keep_gathered ? " share positions, keep rows"
                                                               : " share positions";
  return fmt::format("{:<42} ",
                     fmt::format("{} tensor rank{}{},", parallel.tensor, parallel.tensor == 1 ? "" : "s", sequence));
}

} // namespace

std::vector<std::vector<Recompute>> recomputations(GptOptions const& options, std::vector<std::vector<Recompute>> all) {
  if (!options.recompute.empty()) return {options.recompute};
  if (options.attention == AttentionKind::flash) // it keeps no probabilities
    std::erase_if(all, [](auto const& one) { return std::ranges::find(one, Recompute::selective) != one.end(); });
  return all;
}

void set_residences(ParallelConfig& parallel, std::size_t number) {
  StrategyRow const& strategy = row_of(parallel.strategy);
  if (strategy.main_device || strategy.sharers == StateSharers::servers) return;
  constexpr std::array all{Residence::kernels, Residence::host, Residence::file};
  parallel.offload_optimizer = all.at(number / 2 % all.size());
  if (stage_of(parallel) >= 3) parallel.offload_parameters = all.at((number + 1) % all.size());
  parallel.offload_chunk_bytes = tiny_chunk;
}

void set_unit(ParallelConfig& parallel, std::size_t number, std::size_t most) {
  StateSharers const sharers = row_of(parallel.strategy).sharers;
  bool const shares = sharers == StateSharers::all || sharers == StateSharers::group;
  if (shares) parallel.unit = static_cast<std::int64_t>(1 + number / 3 % most);
}

/// Of a row: "no offload", "to host, file" (the optimizer's state, parameters).
std::string describe_residences(ParallelConfig const& parallel) {
  if (parallel.offload_optimizer == Residence::kernels && parallel.offload_parameters == Residence::kernels)
    return "no offload";
  return fmt::format("to {}, {}", to_string(parallel.offload_optimizer), to_string(parallel.offload_parameters));
}

std::string describe(MatrixRow const& row, Rank ranks) {
  char const* const delays = row.delays == MatrixDelays::none         ? "no delays"
                             : row.delays == MatrixDelays::slow_sends ? "slow sends"
                                                                      : "slow kernels";
  return fmt::format("M {:>2}, {:<7}, {} ranks, {}{}{:<29} {:<8} {:<14} {:<11} {:<12} {:<14} {:<12} unit {}",
                     row.micro_batches, to_string(row.recipe), ranks, describe_slices(row), describe_stages(row),
                     strategy_name(row.parallel, ranks), row.algorithm,
                     row.parallel.bucket_bytes == tiny_bucket ? "tiny buckets" : "default bucket",
                     row.parallel.overlap ? "overlap" : "no overlap", delays, joined(row.recompute, "+"),
                     describe_residences(row.parallel), row.parallel.unit);
}

std::vector<MatrixRow> equivalence_matrix(Rank ranks, bool quick, bool shares_memory, GptOptions const& options) {
  std::vector<MatrixRow> rows;
  using enum Recompute;
  std::vector<std::vector<Recompute>> const again =
      recomputations(options, {{none}, {full}, {selective}, {full, none}, {selective, full}}); // of two blocks
  std::vector<Variation> const all = variations(quick);
  std::size_t next = 0; // of the one variation that a quick row of mixed16 gets
  auto const add = [&](MatrixRow row, Variation const& variation) {
    row.delays = variation.delays;
    if (variation.tiny) row.parallel.bucket_bytes = row.parallel.first_bucket_bytes = tiny_bucket;
    row.parallel.overlap = variation.overlap;
    row.recompute = again[rows.size() % again.size()];
    set_residences(row.parallel, rows.size());
    set_unit(row.parallel, rows.size(), matrix_layers);
    rows.push_back(row);
  };
  for (std::int64_t const micro_batches : {8, 16}) {
    if (quick && micro_batches > 8) break;
    for (ParallelConfig strategy : all_strategies(ranks)) {
      if (!std::has_single_bit(static_cast<std::uint64_t>(mesh_of(strategy, ranks).data()))) continue;
      strategy.reduction = ReductionMode::ordered;
      for (char const* const algorithm : {"ordered", "shared"}) {
        bool const sends_alone = !shares_memory || has_dedicated_servers(strategy);
        if (std::string_view(algorithm) == "shared" && sends_alone) continue; // messages alone
        for (RecipeName const recipe : {RecipeName::fp32, RecipeName::mixed16}) {
          MatrixRow const row{micro_batches, recipe, strategy, algorithm, MatrixDelays::none};
          if (quick && row.recipe != RecipeName::fp32)
            add(row, all[next++ % all.size()]);
          else
            for (Variation const& variation : all) add(row, variation);
        }
      }
    }
  }
  return rows;
}

std::optional<std::uint64_t> run_matrix_row(ExecutionSpace const& exec, Communicator& communicator,
                                            MatrixRow const& row, RunConfig const& choices, std::int64_t steps) {
  RunConfig const config = config_of(row, choices, communicator.size());
  PlannedTrainer training(exec, communicator,
                          resolve_run(config, communicator.topology(), {.buffers = communicator.buffers()}),
                          {batch_source(config.model.vocab), {}, 0}, steps);
  Trainer& trainer = training.trainer;
  InjectedDelay const delay(faults_of(row.delays, communicator.rank()), communicator.rank());
  for (std::int64_t step = 1; step <= steps; ++step) trainer.step(step);
  trainer.finish();
  ReplicaComparison const compared = compare_replicas(exec, communicator, trainer.engine());
  return compared.equal ? std::optional(compared.hash.value) : std::nullopt;
}

} // namespace trainstone
