#include "result/pipeline_info.hpp"

#include "core/error.hpp"
#include "result/json_file.hpp"

namespace trainstone {

namespace {

using Json = nlohmann::ordered_json;

PipelineTimeParts read_parts(JsonFile const& file) {
  auto const part = [&](char const* name) { return file.number(std::string("/pipeline/time_parts/") + name); };
  return {.time = part("time"),
          .busy = part("busy"),
          .unavoidable = part("unavoidable"),
          .imbalance = part("imbalance"),
          .order = part("order"),
          .messages = part("messages"),
          .rest = part("rest")};
}

} // namespace

nlohmann::ordered_json pipeline_json(PipelineInfo const& info) {
  PipelineBubble const& bubble = info.bubble;
  PipelineTimeParts const& parts = bubble.parts;
  return {{"schedule", info.schedule},
          {"stages", info.shape.stages},
          {"chunks", info.shape.chunks},
          {"micro_batches", info.shape.micro_batches},
          {"steps", info.steps},
          {"seconds", bubble.seconds},
          {"idle_share", bubble.idle_share},
          {"idle_ratio", bubble.idle_ratio},
          {"formula_idle_share", bubble.formula_share ? Json(*bubble.formula_share) : Json(nullptr)},
          {"simulated_idle_share", bubble.simulated_share},
          {"message_seconds", bubble.message_seconds},
          {"busy_seconds", bubble.busy},
          {"time_parts",
           {{"time", parts.time},
            {"busy", parts.busy},
            {"unavoidable", parts.unavoidable},
            {"imbalance", parts.imbalance},
            {"order", parts.order},
            {"messages", parts.messages},
            {"rest", parts.rest}}}};
}

std::optional<PipelineInfo> read_pipeline(JsonFile const& file) {
  if (!file.has("/pipeline")) return std::nullopt;
  PipelineInfo info{.schedule = file.text("/pipeline/schedule"),
                    .shape = {.stages = file.count("/pipeline/stages"),
                              .micro_batches = file.count("/pipeline/micro_batches"),
                              .chunks = file.count("/pipeline/chunks")},
                    .steps = file.count("/pipeline/steps"),
                    .bubble = {.seconds = file.positive("/pipeline/seconds"),
                               .busy = file.numbers("/pipeline/busy_seconds", false, JsonFile::Least::zero),
                               .idle_share = file.number("/pipeline/idle_share"),
                               .idle_ratio = file.number("/pipeline/idle_ratio"),
                               .formula_share = file.optional_non_negative("/pipeline/formula_idle_share"),
                               .simulated_share = file.non_negative("/pipeline/simulated_idle_share"),
                               .message_seconds = file.non_negative("/pipeline/message_seconds"),
                               .parts = read_parts(file)}};
  file.require(std::ssize(info.bubble.busy) == info.shape.stages,
               fmt::format("/pipeline/busy_seconds has {} elements, /pipeline/stages is {}", info.bubble.busy.size(),
                           info.shape.stages));
  return info;
}

} // namespace trainstone
