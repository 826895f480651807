#include "report/predicted_step.hpp"

#include "core/error.hpp"
#include "report/machine_source.hpp"
#include "train/plan/run_plan.hpp"
#include "train/plan/step_prediction.hpp"

namespace trainstone {

PredictedStep predicted_step(ResolvedRun const& run, std::string const& path, MeasuredMachine const& machine,
                             std::optional<BuffersChoice> const& buffers) {
  MachineSource const source = machine_source(path, machine, run.topology, buffers);
  std::string const missing = missing_parts(source, run.config);
  TRAINSTONE_REQUIRE_INPUT(missing.empty(), "--machine {}: {}; `trainstone calibrate --deck DECK` measures the parts",
                           path, missing);
  RunPlan const plan = plan_run(run, 0);
  std::string const unknown = machine.fit.missing_for(run.topology, plan.parallel.shares_memory());
  TRAINSTONE_REQUIRE_INPUT(
      unknown.empty(), "--machine {}: no times of {}; `trainstone calibrate --deck DECK` measures them", path, unknown);
  return {plan.parallel,
          predict_timeline(plan, machine.parts->times, source.model, run.config.comm.emulated_network(), Entries::yes)};
}

} // namespace trainstone
