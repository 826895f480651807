#pragma once

// The plan of one rank of a run: what it will allocate, send and compute. `estimate` prints the plan, the Trainer
// allocates from it, and the verification compares it with the counters, with ==. A value, computed from the
// configuration alone, before anything is allocated and without MPI.

#include "comm/schedule/counters.hpp"
#include "core/memory_plan.hpp"
#include "kernels/gemm/gemm_shape.hpp"
#include "model/activation_plan.hpp"
#include "model/parameter_table.hpp"
#include "model/work.hpp"
#include "parallel/plan/engine_memory.hpp"
#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/shard_traffic.hpp"
#include "train/plan/resolved_run.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

struct RunPlan {
  ParameterTable table;
  MicroBatchShape shape;
  Rank rank;
  Rank ranks;
  ShardPlan parallel;
  GemmChoice gemm;    ///< who computes which product
  Index accumulation; ///< micro-batches per rank and step

  std::optional<Problem> batch_scatter =
      {}; ///< of one micro-batch of every rank (train/data/batch_scatter.hpp), if any

  MicroBatchShape held_out_shape = {}; ///< of a micro-batch of a validation
  Index held_out_micro_batches = {};   ///< per rank and global batch of a validation

  std::vector<MemoryItem> memory = {};
  std::uint64_t pinned_bytes = 0;       ///< of memory: the host's, also where the rest is a device's
  std::uint64_t file_bytes = 0;         ///< of state in a file, beside memory
  std::uint64_t host_bytes = 0;         ///< of memory: the host's, for files that the run writes: host_plan()
  std::vector<TrafficRow> start = {};   ///< by the rank, whenever the state is set
  std::vector<TrafficRow> sent = {};    ///< per step, by the rank, for the training
  Traffic update_sent = {};             ///< the part of `sent` that a skipped update does not send
  std::vector<TrafficRow> control = {}; ///< per step: losses, norm
  Index replica_check_every = {};       ///< steps; 0: not during the training
  Traffic replica_check = {};           ///< control traffic of one comparison of parameters
  Traffic changes_sent = {};            ///< control traffic of computing the changes of parameters once
  std::uint64_t changes_launches = 0;   ///< kernels of computing the changes once
  Traffic validation_sent = {};         ///< per micro-batch of a validation: sharded parameters
  Traffic validation_control = {};      ///< per global batch of a validation: its losses
  ModelFlops step_flops = {};           ///< per step and rank
  PerPhase<PhaseWork> step_work = {};   ///< the same with bytes, of all kernels of the model
  std::uint64_t model_gemm_flops = 0;   ///< of a step: without what blocks compute again
  ModelFlops evaluation_flops = {};     ///< per micro-batch of a validation
  PerPhase<PhaseWork> evaluation_work = {};
  std::uint64_t step_launches = 0;       ///< kernels per step, without those of the update
  std::uint64_t update_launches = 0;     ///< per update that is not skipped
  StateMoves update_moves = {};          ///< per update that is not skipped
  StateMoves gather_moves = {};          ///< per step: of its gathers
  StateMoves evaluation_moves = {};      ///< per micro-batch of a validation
  std::uint64_t evaluation_launches = 0; ///< per micro-batch of a validation

  /// Whether this rank runs parts of the model. Dedicated servers do not, and have neither activations nor data.
  bool computes() const { return !parallel.layout.serves(); }
  ActivationCopies activation_copies() const {
    return computes() ? parallel.pipeline.copies() : ActivationCopies{.slots = 1, .inputs = 0, .gradients = 0};
  }
  /// Whether validations have micro-batches of their own. Their activations lie where those of the training lie. Of
  /// what blocks keep for backward there is room for one.
  bool evaluates_apart() const { return held_out_shape.batch != shape.batch; }
  GptOptions held_out_options() const;
  Index most_micro_batches() const { return std::max(accumulation, held_out_micro_batches); }
  /// What is computed here.
  ModelStage computed_stage() const { return computes() ? table.stage() : ModelStage::nothing(); }
  /// The types in which the model's numbers are stored.
  ModelStorage storage() const { return {parallel.layout.types.parameters, parallel.reductions.storage}; }
  /// Sums of `memory`, `start`, `sent` and `control`.
  CategoryBytes memory_bytes() const;
  /// Bytes of the memory that kernels work on: what a device must have.
  std::uint64_t kernel_memory() const;
  Traffic start_sent() const { return sum_of(start); }
  Traffic step_sent() const { return sum_of(sent); }
  Traffic step_control() const { return sum_of(control); }

  bool checks_replicas_after(Index step) const { return replica_check_every > 0 && step % replica_check_every == 0; }
  /// Number of comparisons of replicas in the first `steps` steps.
  std::uint64_t replica_checks(Index steps) const {
    return replica_check_every > 0 ? static_cast<std::uint64_t>(steps / replica_check_every) : 0;
  }

private:
  static Traffic sum_of(std::vector<TrafficRow> const& rows);
};

/// \param[in] rank  of run.topology.ranks()
/// \throws InputError if the model, the strategy or an algorithm is not possible
RunPlan plan_run(ResolvedRun const& run, Rank rank);
/// The same plan without traffic, work and launches, which take most of the time. What is left says how the ranks share
/// the state, and how much a rank allocates: `memory` has all activations as one item.
RunPlan plan_memory(ResolvedRun const& run, Rank rank);
/// As plan_memory(), with what the rank sends per step.
RunPlan plan_traffic(ResolvedRun const& run, Rank rank);
/// The part of it that says how the ranks share the training state. \param[in] table  of run.mesh.parts() parts
ShardPlan plan_shards(ResolvedRun const& run, ParameterTable const& table, Rank rank);
/// The plan of the first rank of each stage; of rank 0 alone without a pipeline.
std::vector<RunPlan> plan_stages(ResolvedRun const& run);
/// The plan of resolve_run(config, topology), where a machine decides nothing.
RunPlan plan_run(RunConfig const& config, Rank rank, Topology const& topology);
/// As above, with all ranks on one node.
RunPlan plan_run(RunConfig const& config, Rank rank, Rank ranks);

/// Bytes that providers of products need.
std::uint64_t gemm_scratch(RunPlan const& plan, GptConfig const& model);
/// Bytes of the activations of a step.
std::uint64_t training_activations(RunPlan const& plan, GptConfig const& model);
/// Of the activations of a validation, if they are not those of the training; else 0.
std::uint64_t held_out_activations(RunPlan const& plan, GptConfig const& model);
/// The activations of the model, and what a validation needs more.
std::vector<PlannedTensor> planned_activations(RunPlan const& plan, GptConfig const& model);
/// The tensors that the Trainer takes from the arenas of its buffers and its data, in order.
std::vector<PlannedTensor> buffer_plan(RunPlan const& plan);
std::vector<PlannedTensor> data_plan(RunPlan const& plan);
/// Pinned memory in which the host fills the data: the same size again if the host does not reach the device's memory,
/// else none.
std::vector<PlannedTensor> mirror_plan(RunPlan const& plan);

/// Host memory for the files that a run writes, without checkpoints: names and bytes, not rounded up. Empty for a
/// training that writes no such file.
std::vector<PlannedTensor> host_plan(RunConfig const& config, Rank rank);
/// Number of elements that one part of model.save has at most.
inline constexpr Index saved_at_a_time = Index{1} << 18;

inline constexpr Algorithm batch_scatter_algorithm = Algorithm::linear;

} // namespace trainstone
