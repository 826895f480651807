#pragma once

// The configuration of how work is split over ranks and how parameters are updated. Plain values.

#include "core/residence.hpp"
#include "core/storage.hpp"
#include "parallel/pipeline/stage_cut.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// Whether results may depend on how the work is split.
enum class ReductionMode {
  fast,    ///< to rounding
  ordered, ///< the same bits for every strategy and every power of two of ranks, up to the micro-batches of a step
};

/// When ranks reduce gradients, if a rank has several micro-batches per step.
enum class ReduceWhen { by_strategy, last, each };

/// The gradients that one reduction takes, in data parallelism: the rungs of DDP.
enum class Granularity {
  step,   ///< all gradients, after backward
  tensor, ///< every tensor on its own
  bucket,
};

/// How stages 1 and 2 add up gradients: to their owners alone, or on all ranks, as it is often drawn, with 1.5 times
/// the volume. In stage 2 all but the owner drop the sum.
enum class GradientReductionWay { reduce_scatter, all_reduce };

/// What a rank owns where state is sharded: a part of every parameter group, or whole groups.
enum class StatePartition { intra_layer, inter_layer };

/// The strategy: which part of the training state each rank keeps (strategies.hpp).
enum class Strategy {
  naive, ///< every rank keeps all, and rank 0 sends it out (NaiveUpdate::main: rank 0 alone keeps optimizer state)
  ddp,   ///< every rank keeps all
  zero,  ///< shared out among all ranks, by stage
  hsdp,  ///< shared out in groups of ranks
  parameter_server, ///< workers keep parameters and gradients, servers the rest
};

/// As decks write it.
std::string_view to_string(Strategy strategy);

/// Who updates in naive data parallelism.
enum class NaiveUpdate {
  each, ///< every rank, with the mean gradient that rank 0 sends out
  main, ///< rank 0 alone, which sends out parameters
};

/// For whom a worker waits after its push.
enum class ServerMode {
  sync,    ///< for all other workers
  async,   ///< for nobody
  bounded, ///< for workers that are more pushes behind than the staleness
};

/// Who decides the order of pushes where workers do not wait for all others.
enum class ServerOrder {
  planned, ///< the plan, from the times that faults give to workers: the same in every run
  arrival, ///< time
};

/// When servers update, and what goes first between them and workers.
enum class ServerSchedule {
  fifo,     ///< all parameters at once, when all gradients are there; what is complete first goes first
  priority, ///< unit by unit; what the next forward needs first goes first
};

/// All of them may be under way at the same time, on memory that ranks share, too (SharedSegment::open_tickets).
inline constexpr std::int64_t most_row_chunks = 16;

struct ParallelConfig {
  Strategy strategy = Strategy::ddp;
  std::int64_t zero_stage = 0;  ///< 1, 2, 3 of strategy zero; 0: not given
  std::int64_t shard_group = 0; ///< ranks that share one copy, of strategy hsdp; 0: not given
  std::int64_t servers = 1;     ///< dedicated ranks of strategy parameter_server: the last ones
  bool colocated = false;       ///< instead every rank serves a share, and works
  ServerMode server_mode = ServerMode::sync;
  std::int64_t staleness = 0;                      ///< threshold of clocks, of ServerMode::bounded
  ServerOrder server_order = ServerOrder::planned; ///< where workers do not wait for each other
  ServerSchedule server_schedule = ServerSchedule::fifo;
  double server_slice_bytes = 0; ///< of gradients, at most in one push; 0: bucket_bytes. Of ServerSchedule::priority
  double server_lr_scale = 0;    ///< factor on the learning rate of a push of one worker; 0: 1 / workers
  NaiveUpdate naive_update = NaiveUpdate::each;
  StatePartition partition = StatePartition::intra_layer;
  ReductionMode reduction = ReductionMode::fast;
  ReduceWhen reduce = ReduceWhen::by_strategy;
  Granularity granularity = Granularity::bucket;
  GradientReductionWay gradient_reduction = GradientReductionWay::reduce_scatter;
  double bucket_bytes = 25.0 * 1024 * 1024;
  double first_bucket_bytes = 1024.0 * 1024; ///< of the gradients that backward completes first
  bool overlap = true;                       ///< communicate while computing
  std::int64_t in_flight = 2;                ///< reductions at a time
  std::int64_t prefetch = 1;                 ///< units of parameters that are gathered ahead
  std::int64_t unit = 1;                     ///< blocks of a unit, at most
  std::int64_t check_replicas = 0;           ///< steps between comparisons of parameters; 0 = after the last step only

  std::int64_t tensor = 1;                          ///< ranks that share every layer
  std::array<std::int64_t, 3> tensor_grid{1, 1, 1}; ///< as a deck gives it: `tensor`, features(), and shard_group
  std::int64_t tensor_blocks = 0;                   ///< slices of every layer; 0: as many as ranks share it
  bool sequence = false;                  ///< tensor ranks share the positions of every sample outside of products
  bool tensor_keep_gathered = false;      ///< and keep for backward what they gather forward
  std::int64_t tensor_row_chunks = 1;     ///< in which tensor ranks add up what blocks compute
  std::int64_t pipeline = 1;              ///< stages
  std::string pipeline_schedule = "1f1b"; ///< one of pipeline_schedules() (parallel/pipeline)
  std::int64_t pipeline_chunks = 1;       ///< of a stage
  StageCut stage_cut = StageCut::even;
  std::vector<std::int64_t> stages = {}; ///< blocks of each stage, of StageCut::listed

  Residence offload_optimizer = Residence::kernels;  ///< where the optimizer's state lies
  Residence offload_parameters = Residence::kernels; ///< where a rank's shares of sharded parameters lie
  double offload_chunk_bytes = 16.0 * 1024 * 1024;   ///< of a vector in fp32, that an update moves at a time
  std::string offload_folder = {};                   ///< of files; empty: the system's for such files
  DirectIo direct_io = DirectIo::automatic;          ///< of files
  IoEngine io_engine = IoEngine::automatic;          ///< of files

  FileSettings offload_files() const { return {offload_folder, direct_io, io_engine}; }
  /// Ranks that share the features of the residual stream.
  constexpr std::int64_t features() const { return tensor_grid[1]; }
  bool has_grid() const { return tensor_grid != std::array<std::int64_t, 3>{1, 1, 1}; }
  /// Slices of every layer.
  constexpr std::int64_t slices() const { return tensor_blocks > 0 ? tensor_blocks : tensor; }
  /// Factor on the learning rate of a push of one of so many workers.
  double lr_scale_of(std::int64_t workers) const {
    return server_lr_scale > 0 ? server_lr_scale : 1 / static_cast<double>(workers);
  }
  /// Whether rank 0 alone updates: then it owns everything.
  constexpr bool updates_alone() const { return strategy == Strategy::naive && naive_update == NaiveUpdate::main; }
};

/// Whether gradients are multiplied with a power of two, so that small gradients are not lost in 16 bits.
enum class LossScaling {
  none,
  dynamic, ///< the largest power of two without overflow: see train/loss_scaler.hpp
};

/// The types of the training state (parallel/plan/recipe.hpp). A mixed recipe is named after its bytes per parameter
/// with adamw.
enum class RecipeName { fp32, mixed16, mixed18, mixed20 };

/// As decks write it.
constexpr std::string_view to_string(RecipeName name) {
  switch (name) {
  case RecipeName::fp32: return "fp32";
  case RecipeName::mixed16: return "mixed16";
  case RecipeName::mixed18: return "mixed18";
  case RecipeName::mixed20: return "mixed20";
  }
  return "unknown";
}

struct PrecisionConfig {
  RecipeName recipe = RecipeName::fp32;
  Storage storage = Storage::bf16; ///< of the mixed recipes: what the model computes with
  LossScaling loss_scale = LossScaling::none;
  double initial_loss_scale = 65536;   ///< a power of two
  std::int64_t growth_interval = 2000; ///< steps without overflow after which the scale doubles
  std::int64_t most_skipped = 20;      ///< steps in a row
};

/// Which parameters weight decay shrinks.
enum class DecayScope { matrices, all };

enum class OptimizerType { adamw, adam, sgd };

struct OptimizerConfig {
  OptimizerType type = OptimizerType::adamw;
  double learning_rate = 3e-4;
  std::array<double, 2> betas{0.9, 0.95};
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  DecayScope decay = DecayScope::matrices;
  double momentum = 0; ///< of sgd; 0 = none
  double clip = 1.0;   ///< largest norm of the gradient; 0 = no clipping

  /// fp32 values that are kept per parameter beside the parameter itself.
  constexpr std::int64_t moments() const { return type != OptimizerType::sgd ? 2 : momentum > 0 ? 1 : 0; }
};

} // namespace trainstone
