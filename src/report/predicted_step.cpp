#include "report/predicted_step.hpp"

#include "core/error.hpp"
#include "report/machine_source.hpp"
#include "train/pace.hpp"
#include "train/plan/run_plan.hpp"
#include "train/plan/step_prediction.hpp"

namespace trainstone {

PredictedStep predicted_step(ResolvedRun const& run, std::string const& path, MeasuredMachine const& machine,
                             std::optional<BuffersChoice> const& buffers) {
  MachineSource const source = machine_source(path, machine, run.topology, buffers);
  std::string const missing = missing_parts(source, run.config);
  TRAINSTONE_REQUIRE_INPUT(missing.empty(), "--machine {}: {}; `trainstone calibrate --deck DECK` measures the parts",
                           path, missing);
  std::vector<RunPlan> const stages = plan_stages(run);
  PredictedStep predicted;
  for (RunPlan const& plan : stages) {
    std::string const unknown = machine.fit.missing_for(run.topology, plan.parallel.shares_memory());
    TRAINSTONE_REQUIRE_INPUT(unknown.empty(),
                             "--machine {}: no times of {}; `trainstone calibrate --deck DECK` measures them", path,
                             unknown);
    predicted.stages.push_back(plan.parallel);
  }
  PartTimes const parts = paced(machine.parts->times, run.config.faults);
  predicted.timeline = predict_timeline(stages, parts, source.model, run.config.comm.emulated_network(), Entries::yes,
                                        machine.offload.value_or(OffloadRates{}));
  return predicted;
}

} // namespace trainstone
