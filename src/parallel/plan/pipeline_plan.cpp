#include "parallel/plan/pipeline_plan.hpp"

#include "parallel/pipeline/pipeline_schedules.hpp"
#include "parallel/plan/strategies.hpp"

#include <algorithm>
#include <numeric>

namespace trainstone {

namespace {

PipelineShape shape_of(ParallelConfig const& parallel, Index micro_batches) {
  return {.stages = parallel.pipeline, .micro_batches = micro_batches, .chunks = parallel.pipeline_chunks};
}

/// Without overlap, a stage either computes or sends.
MessagePolicy policy_of(ParallelConfig const& parallel) {
  return {.waits = overlaps(parallel) ? SendWaits::late : SendWaits::at_once};
}

std::optional<PlannedCollective> table_sum(StateLayout const& layout) {
  Rank const last = layout.mesh.pipeline - 1, stage = layout.mesh.index(Axis::pipeline, layout.rank);
  if (stage != 0 && stage != last) return std::nullopt;
  StagePair const ends{0, last};
  Index const elements = layout.share(layout.table_group()).size();
  Topology const line = layout.topology.of(layout.mesh.members(ends, layout.rank));
  return PlannedCollective{Axis::pipeline, even_problem(Collective::all_reduce, elements, line), Algorithm::butterfly,
                           ends};
}

/// As many blocks in every chunk of every stage: chunk after chunk through all stages.
std::vector<ModelStage> stages_of_chunks(ParallelConfig const& parallel, Index blocks) {
  Index const stages = parallel.pipeline, chunks = parallel.pipeline_chunks, each = blocks / (stages * chunks);
  std::vector<ModelStage> all;
  for (Index stage = 0; stage < stages; ++stage) {
    ModelStage one{.embed = stage == 0, .blocks = {}, .head = stage + 1 == stages};
    for (Index chunk = 0; chunk < chunks; ++chunk) {
      one.chunks.push_back(each);
      for (Index block = 0; block < each; ++block) one.blocks.push_back((chunk * stages + stage) * each + block);
    }
    all.push_back(std::move(one));
  }
  return all;
}

} // namespace

ActivationBuffers buffers_of(StageInstruction const& instruction) {
  auto const number = [](Index index) { return index == StageInstruction::none ? 0 : index; };
  return {
      .slot = number(instruction.slot), .input = number(instruction.input), .gradient = number(instruction.gradient)};
}

ActivationCopies PipelinePlan::copies() const {
  if (!has_stages()) return {};
  return {.slots = std::max(training.slots, evaluation.slots),
          .inputs = std::max(training.inputs, evaluation.inputs),
          .gradients = training.gradients};
}

PreparedMessage prepared_message(bool sends, MessageKind kind, Index chunk, ActivationBuffers const& buffers) {
  bool const activation = kind == MessageKind::activation;
  Index const buffer = !activation ? buffers.gradient : sends ? buffers.slot : buffers.input;
  return {sends, kind, sends && activation ? chunk : 0, buffer};
}

std::set<PreparedMessage> prepared_messages(PipelinePlan const& pipeline) {
  std::set<PreparedMessage> all;
  for (StageProgram const* const program : {&pipeline.training, &pipeline.evaluation})
    for (StageInstruction const& one : program->instructions)
      if (one.act == StageAct::send || one.act == StageAct::receive)
        all.insert(prepared_message(one.act == StageAct::send, one.kind, one.chunk, buffers_of(one)));
  return all;
}

PipelineProgram training_pipeline(ParallelConfig const& parallel, Index micro_batches) {
  PipelineShape const shape = shape_of(parallel, micro_batches);
  PipelineSchedule const& schedule = parse_pipeline_schedule(parallel.pipeline_schedule);
  return make_pipeline_program(shape, make_pipeline_order(schedule, shape), policy_of(parallel));
}

PipelineProgram evaluation_pipeline(ParallelConfig const& parallel) {
  PipelineShape const shape = shape_of(parallel, 1);
  std::vector<StageOrder> const orders(static_cast<std::size_t>(shape.stages), pipeline_evaluation_order(shape));
  return make_pipeline_program(shape, orders, policy_of(parallel));
}

PipelinePlan make_pipeline_plan(ParallelConfig const& parallel, StateLayout const& layout, Index message_elements) {
  PipelinePlan plan;
  if (layout.mesh.pipeline == 1) return plan;
  plan.shape = shape_of(parallel, layout.rank_micro_batches);
  plan.stage = layout.mesh.index(Axis::pipeline, layout.rank);
  PipelineSchedule const& schedule = parse_pipeline_schedule(parallel.pipeline_schedule);
  PipelineShape const of_evaluation = shape_of(parallel, 1);
  plan.training =
      make_stage_program(plan.shape, plan.stage, schedule.order(plan.shape, plan.stage), policy_of(parallel));
  plan.evaluation =
      make_stage_program(of_evaluation, plan.stage, pipeline_evaluation_order(of_evaluation), policy_of(parallel));
  plan.message_elements = message_elements;
  plan.table = table_sum(layout);
  return plan;
}

StagePair channel_stages(PipelineShape const& shape, MessageKind kind, Index sender) {
  auto const [lower, upper] = std::minmax({sender, StageNeighbours{sender, shape.stages}.receiver(kind)});
  return {static_cast<Rank>(lower), static_cast<Rank>(upper)};
}

PlannedCollective planned_message(PipelinePlan const& pipeline, StateLayout const& layout, MessageKind kind,
                                  Index sender) {
  StagePair const stages = channel_stages(pipeline.shape, kind, sender);
  Topology const line = layout.topology.of(layout.mesh.members(stages, layout.rank));
  Problem const problem =
      even_problem(Collective::broadcast, pipeline.message_elements, line, sender == stages.lower ? 0 : 1);
  return {Axis::pipeline, problem, Algorithm::linear, stages};
}

std::vector<ModelStage> model_stages(ParallelConfig const& parallel, BlockCosts const& costs, Index micro_batches) {
  Index const blocks = std::ssize(costs.blocks), stages = parallel.pipeline;
  if (stages > 1 && parallel.pipeline_chunks > 1) return stages_of_chunks(parallel, blocks);
  StageCut const how = stages > 1 ? parallel.stage_cut : StageCut::even; // of one stage, no key of a pipeline is read
  std::vector<Index> const cut = cut_stages(how, parallel.stages, costs, stages, micro_batches);
  std::vector<ModelStage> all;
  Index first = 0;
  for (Index stage = 0; stage < stages; ++stage) {
    ModelStage& one = all.emplace_back(ModelStage{.embed = stage == 0, .blocks = {}, .head = stage + 1 == stages});
    one.blocks.resize(static_cast<std::size_t>(cut[static_cast<std::size_t>(stage)]));
    std::iota(one.blocks.begin(), one.blocks.end(), first);
    first += std::ssize(one.blocks);
  }
  return all;
}

} // namespace trainstone
