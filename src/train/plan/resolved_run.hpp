#pragma once

// A run that has nothing left to choose: the configuration, the ranks, and what the machine has decided. A program
// makes it once for a training, with resolve_run(), and changes no configuration afterwards. A plain value without
// Kokkos and without MPI. Does not measure and does not read decks.

#include "comm/schedule/message_buffers.hpp"
#include "comm/schedule/topology.hpp"
#include "kernels/gemm/gemm_shape.hpp"
#include "model/activation_plan.hpp"
#include "model/parameter_table.hpp"
#include "parallel/plan/mesh.hpp"
#include "train/plan/run_config.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// What a machine decides where a configuration leaves the choice to it. What is not given here follows a rule.
struct MachineChoices {
  std::optional<MessageBuffers> buffers = {};         ///< in place of comm.buffers; by rule: resolve_buffers()
  std::optional<GemmChoice> gemm = {};                ///< for kernels.gemm = "measured"; by rule: that of "auto"
  std::map<std::string, std::string> algorithms = {}; ///< by key in algorithm_keys, in place of "measured"
};

/// The shape of a training's micro-batches.
MicroBatchShape micro_batch_shape(RunConfig const& config);

/// Options of the model with the provider that computes attention in this build.
/// \throws InputError  if kernels.attention names a provider that the build does not have, or that does not take the
///         model's heads, the type of its values or its dropout
GptOptions with_attention_provider(RunConfig const& config);

struct ResolvedRun {
  RunConfig config;                              ///< names its buffers, measured algorithms, and the slices of rank 0
  Topology topology = Topology::one_node(1);     ///< of all ranks; emulated nodes are nodes
  Mesh mesh;                                     ///< of all ranks
  std::vector<ModelStage> stages;                ///< of the pipeline: what each has of the model; one: all of it
  MessageBuffers buffers = MessageBuffers::host; ///< those that config.comm names
  GemmChoice gemm = GemmProvider::automatic;     ///< who computes which product

  MicroBatchShape shape() const { return micro_batch_shape(config); }
  /// What a rank has of the model, and its parameters.
  ModelStage const& stage_of(Rank rank) const {
    return stages[static_cast<std::size_t>(mesh.index(Axis::pipeline, rank))];
  }
  ParameterTable table_of(Rank rank) const {
    return ParameterTable(config.model, mesh.parts(), stage_of(rank), options_of(rank).slices, config.parallel.unit);
  }
  /// The model's options, with the slices that a rank has.
  GptOptions options_of(Rank rank) const {
    GptOptions options = config.model_options;
    options.slices.rank = mesh.index(Axis::tensor, rank);
    options.slices.feature_part = mesh.index(Axis::features, rank);
    return options;
  }
};

/// \param[in] config  with all three batch numbers: of resolve() (deck/deck.hpp), or made by a program
/// \throws InputError if this build has no such buffers or no such provider of products or attention, or if the model
///         cannot be cut into the stages of the pipeline
ResolvedRun resolve_run(RunConfig const& config, Topology const& topology, MachineChoices const& machine = {});

} // namespace trainstone
