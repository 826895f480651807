#pragma once

// How the ranks share the training, as one of them sees it: who holds what, how gradients are added up, how parameters
// come together. Owns nothing but the composition. `estimate` prints this plan, the engine executes it, and the checks
// of a run compare with it. A plain value, computed without MPI and before anything is allocated. Functions take the
// part that they read: a layout, reductions or gathers.

#include "comm/schedule/config.hpp"
#include "comm/schedule/message_buffers.hpp"
#include "model/part.hpp"
#include "parallel/plan/gather_plan.hpp"
#include "parallel/plan/offload_plan.hpp"
#include "parallel/plan/pipeline_plan.hpp"
#include "parallel/plan/planned_collective.hpp"
#include "parallel/plan/reduction_plan.hpp"
#include "parallel/plan/state_layout.hpp"
#include "parallel/plan/tensor_plan.hpp"

#include <vector>

namespace trainstone {

struct ShardPlan {
  StateLayout layout;
  ReductionPlan reductions;
  GatherPlan gathers;
  std::vector<PlannedCollective> state_broadcasts; ///< of every group, from rank 0; none: each sets its own
  PartTable parts;                                 ///< of the model, or of this rank's stage
  TensorPlan tensor;
  PipelinePlan pipeline;
  OffloadPlan offload;
  bool overlap = true;                                   ///< communicate while computing
  MessageBuffers message_buffers = MessageBuffers::host; ///< what MPI is given

  /// Whether servers update unit by unit, and ranks send first what the next forward needs first.
  bool by_priority() const { return reductions.by_priority; }
  /// Whether this rank computes the losses of its micro-batches.
  bool has_losses() const { return parts.has_head() && !layout.serves(); }
  /// Whether a step adds up two parts of the token table's gradient at its end. Look-up and head have a part each, or a
  /// pipeline's first and last stage.
  bool ties_table() const { return reductions.adds_parts_of_table() || pipeline.table; }
  /// Whether collectives of the training work in memory that ranks share.
  bool shares_memory() const {
    return reductions.sharers_of_fresh() || reductions.sharers_of_kept() || gathers.sharers() || tensor.sharers();
  }
};

/// \param[in] parallel            checked: find_parallel_problem() has nothing to say
/// \param[in] rank_micro_batches  that each rank runs in a step
/// \param[in] options             of the model: what its blocks compute again, and the slices of this rank
/// \param[in] stream              of a micro-batch, (N, C); of pipelines and of tensor ranks only
/// \throws InputError   if an algorithm is unknown or cannot solve its problem
ShardPlan make_shard_plan(ParallelConfig const& parallel, OptimizerConfig const& optimizer,
                          PrecisionConfig const& precision, CommConfig const& comm, ParameterTable const& table,
                          Topology const& topology, Rank rank, Index rank_micro_batches, GptOptions const& options = {},
                          StreamShape const& stream = {});

} // namespace trainstone
