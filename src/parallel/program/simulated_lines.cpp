#include "parallel/program/simulated_lines.hpp"

#include "parallel/pipeline/pipeline_channels.hpp"

namespace trainstone::Impl {

namespace {

LineName channel(ShardPlan const& plan, MessageKind kind, Index sender) {
  LineName name = line_name(Axis::pipeline, plan);
  name.pair = {Act::send, static_cast<Index>(kind) * plan.pipeline.shape.stages + sender};
  return name;
}

} // namespace

LineName line_name(Axis axis, ShardPlan const& plan) {
  return {.axis = axis, .colour = plan.layout.mesh.colour(axis, plan.layout.rank)};
}

LineName line_of_collective(Instruction const& start, Axis axis, ShardPlan const& plan) {
  LineName name = line_name(axis, plan);
  if (plan.by_priority()) name.pair = {start.act, start.subject};
  return name;
}

LineName line_of_ends(ShardPlan const& plan) {
  LineName name = line_name(Axis::pipeline, plan);
  name.pair = {Act::tie, 0};
  return name;
}

LineName channel_of(Instruction const& message, ShardPlan const& plan) {
  MessageKind const kind = message_kind(message);
  return channel(plan, kind, plan.pipeline.sender(message.act == Act::send, kind));
}

std::vector<LineName> lines_of(ShardPlan const& plan) {
  PipelinePlan const& pipeline = plan.pipeline;
  std::vector<LineName> names{{}};
  for (Axis const axis : axes) names.push_back(line_name(axis, plan));
  if (plan.by_priority()) {
    for (Index bucket = 0; bucket < plan.reductions.buckets.buckets(); ++bucket)
      names.push_back(line_of_collective({.act = Act::reduce, .subject = bucket}, Axis::shard, plan));
    for (Index unit = 0; unit < std::ssize(plan.layout.units); ++unit)
      names.push_back(line_of_collective({.act = Act::publish, .subject = unit}, Axis::shard, plan));
  }
  if (!pipeline.has_stages()) return names;
  for (MessageKind const kind : {MessageKind::activation, MessageKind::gradient})
    for (bool const sends : {true, false}) names.push_back(channel(plan, kind, pipeline.sender(sends, kind)));
  if (pipeline.table) names.push_back(line_of_ends(plan));
  return names;
}

Instruction meaning_of(Instruction const& message, ShardPlan const& plan) {
  PipelinePlan const& pipeline = plan.pipeline;
  Instruction send{.act = Act::send, .subject = message.subject, .micro_batch = message.micro_batch};
  send.piece = message.act == Act::receive
                   ? message.piece
                   : reading_chunk(pipeline.shape, message_kind(message), pipeline.stage, message.piece);
  return send;
}

} // namespace trainstone::Impl
