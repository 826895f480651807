#include "stages_table.hpp"

#include "core/plural.hpp"
#include "parallel/plan/pipeline_plan.hpp"
#include "report/output.hpp"

#include <fmt/format.h>

namespace trainstone {

namespace {

/// "embed, 4 blocks", "4 blocks in 2 chunks, head"
std::string contents(ModelStage const& stage) {
  std::string text = stage.embed ? "embed, " : "";
  text += plural(std::ssize(stage.blocks), "block");
  if (stage.chunks.size() > 1) text += fmt::format(" in {} chunks", stage.chunks.size());
  return stage.head ? text + ", head" : text;
}

} // namespace

std::string stages_table(ResolvedRun const& run) {
  if (run.mesh.pipeline == 1) return "";
  std::string text = fmt::format("stages of {}\n  {:>5}  {:<28} {:>12} {:>6} {:>14} {:>14} {:>12} {:>9}\n",
                                 run.config.parallel.pipeline_schedule, "stage", "has", "parameters", "slots",
                                 "activations", "memory", "FLOP", "messages");
  for (RunPlan const& plan : plan_stages(run)) {
    PipelinePlan const& pipeline = plan.parallel.pipeline;
    Traffic const sent = plan.step_sent();
    text += fmt::format(
        "  {:>5}  {:<28} {:>12} {:>6} {:>14} {:>14} {:>12.4e} {:>9}\n", pipeline.stage, contents(plan.table.stage()),
        plan.table.size(), pipeline.copies().slots, mebibytes(plan.memory_bytes()[MemoryCategory::activations]),
        mebibytes(plan.memory_bytes().total()), static_cast<double>(plan.step_flops.total()), sent.messages);
  }
  return text;
}

} // namespace trainstone
