#pragma once

// The place of a rank in a pipeline: which stage it is, what it computes in which order, and what it exchanges with
// other stages. Owns the shape of messages. A plain value. Does not know how an order becomes instructions of a step
// (parallel/program/pipeline_order.hpp).

#include "model/activation_plan.hpp"
#include "model/config.hpp"
#include "parallel/pipeline/pipeline_stages.hpp"
#include "parallel/pipeline/stage_program.hpp"
#include "parallel/plan/config.hpp"
#include "parallel/plan/planned_collective.hpp"
#include "parallel/plan/state_layout.hpp"

#include <compare>
#include <optional>
#include <set>
#include <vector>

namespace trainstone {

struct PipelinePlan {
  PipelineShape shape;          ///< one stage: there is no pipeline, and nothing of the following
  Index stage = 0;              ///< this rank's
  StageProgram training = {};   ///< of this stage, of all micro-batches of a step
  StageProgram evaluation = {}; ///< of one micro-batch
  Index message_elements = 0;   ///< of the residual stream of a micro-batch: (N, C)
  /// The sum of the token table's gradient over the first and the last stage, which both have the table. None: on
  /// another stage.
  std::optional<PlannedCollective> table = {};

  bool has_stages() const { return shape.stages > 1; }
  /// The stage that sends this stage's messages of a kind: this stage what it sends, a neighbour what it receives.
  Index sender(bool sends, MessageKind kind) const {
    return sends ? stage : StageNeighbours{stage, shape.stages}.sender(kind);
  }
  /// What training and evaluation need.
  ActivationCopies copies() const;
};

/// Where the instruction names none, the first one.
ActivationBuffers buffers_of(StageInstruction const& instruction);

/// The messages that use one buffer in one direction: the engine prepares them once.
struct PreparedMessage {
  bool sends;
  MessageKind kind;
  Index chunk;  ///< whose output is sent; of other messages 0
  Index buffer; ///< a slot, an input or a gradient buffer

  auto operator<=>(PreparedMessage const&) const = default;
};

PreparedMessage prepared_message(bool sends, MessageKind kind, Index chunk, ActivationBuffers const& buffers);
/// The messages of training and evaluation.
std::set<PreparedMessage> prepared_messages(PipelinePlan const& pipeline);

/// The programs of all stages: of a training with so many micro-batches, and of one micro-batch forward.
/// \param[in] parallel  checked: find_pipeline_problem() has nothing to say
PipelineProgram training_pipeline(ParallelConfig const& parallel, Index micro_batches);
PipelineProgram evaluation_pipeline(ParallelConfig const& parallel);

/// \param[in] message_elements  of the residual stream of a micro-batch
PipelinePlan make_pipeline_plan(ParallelConfig const& parallel, StateLayout const& layout, Index message_elements);

/// The two stages that a channel joins. \param[in] sender  a stage
StagePair channel_stages(PipelineShape const& shape, MessageKind kind, Index sender);

/// A channel's messages: a broadcast between two stages. \param[in] sender  a stage
PlannedCollective planned_message(PipelinePlan const& pipeline, StateLayout const& layout, MessageKind kind,
                                  Index sender);

/// What each stage has of the model. One stage: all of it. \param[in] costs  of the blocks, for StageCut::balanced
/// \param[in] micro_batches  per rank and step
/// \throws InputError if the model cannot be cut so
std::vector<ModelStage> model_stages(ParallelConfig const& parallel, BlockCosts const& costs, Index micro_batches);

} // namespace trainstone
