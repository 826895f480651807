// The explanation of a pipeline as JSON. Part of pipeline_text.hpp.

#include "core/json_text.hpp"
#include "report/pipeline_text.hpp"

#include <nlohmann/json.hpp>

namespace trainstone {

namespace {

using Json = nlohmann::ordered_json;

std::string_view act_name(StageAct act) {
  switch (act) {
  case StageAct::receive: return "receive";
  case StageAct::wait_receive: return "wait_receive";
  case StageAct::forward: return "forward";
  case StageAct::backward: return "backward";
  case StageAct::weights: return "weights";
  case StageAct::send: return "send";
  case StageAct::wait_send: return "wait_send";
  }
  return "unknown";
}

Json instruction_json(StageInstruction const& one, PipelineSpan const& span) {
  Json json = {{"act", act_name(one.act)}};
  if (!computes(one.act)) json["kind"] = to_string(one.kind);
  json["micro_batch"] = one.micro_batch;
  json["chunk"] = one.chunk;
  for (auto const& [name, value] : {std::pair("slot", one.slot), {"input", one.input}, {"gradient", one.gradient}})
    if (value != StageInstruction::none) json[name] = value;
  json["begin"] = span.begin;
  json["end"] = span.end;
  return json;
}

Json stage_json(PipelineExplanation const& explanation, std::size_t stage) {
  StageProgram const& program = explanation.program.stages[stage];
  StageTimeline const& timeline = explanation.timeline.stages[stage];
  Json prices = Json::array(), instructions = Json::array();
  for (ChunkPrice const& chunk : explanation.prices.chunks[stage])
    prices.push_back({{"forward", chunk.forward}, {"backward", chunk.backward}, {"weights", chunk.weights}});
  for (std::size_t i = 0; i < program.instructions.size(); ++i)
    instructions.push_back(instruction_json(program.instructions[i], timeline.spans[i]));
  Json slots_in_use = Json::array();
  for (SlotsInUse const& moment : timeline.slots) slots_in_use.push_back({moment.time, moment.slots});
  return {{"slots", program.slots},      {"inputs", program.inputs}, {"gradients", program.gradients},
          {"busy", timeline.busy},       {"chunks", prices},         {"slots_in_use", slots_in_use},
          {"instructions", instructions}};
}

Json formulas_json(std::optional<PipelineFormulas> const& formulas) {
  if (!formulas) return nullptr;
  Json const exposed = formulas->exposed_messages ? Json(*formulas->exposed_messages) : Json(nullptr);
  return {{"time", formulas->time},
          {"bubble_ratio", formulas->bubble_ratio},
          {"idle_share", formulas->bubble_share()},
          {"in_flight", formulas->in_flight},
          {"messages", formulas->messages},
          {"exposed_messages", exposed}};
}

} // namespace

std::string pipeline_json(PipelineExplanation const& explanation) {
  PipelineShape const& shape = explanation.program.shape;
  PipelineTimeline const& timeline = explanation.timeline;
  PipelineTimeParts const& parts = explanation.parts;
  Json stages = Json::array();
  for (std::size_t stage = 0; stage < explanation.program.stages.size(); ++stage)
    stages.push_back(stage_json(explanation, stage));
  return json_line(Json{{"schedule", explanation.name},
                        {"meaning", explanation.meaning},
                        {"stages", shape.stages},
                        {"micro_batches", shape.micro_batches},
                        {"chunks", shape.chunks},
                        {"ticks_per_unit", explanation.unit},
                        {"head", explanation.prices.head},
                        {"message", explanation.prices.message},
                        {"time", timeline.time},
                        {"bound", explanation.bound},
                        {"gap_percent", gap_percent(timeline.time, explanation.bound)},
                        {"idle_share", timeline.idle_share()},
                        {"messages", timeline.messages.size()},
                        {"exposed", explanation.exposed},
                        {"formulas", formulas_json(explanation.formulas)},
                        {"sum_rule",
                         {{"time", parts.time},
                          {"busy", parts.busy},
                          {"unavoidable", parts.unavoidable},
                          {"imbalance", parts.imbalance},
                          {"order", parts.order},
                          {"messages", parts.messages}}},
                        {"programs", stages}}) +
         "\n";
}

} // namespace trainstone
