#pragma once

// What the order of a pipeline alone costs: the simulated timeline of its chunks and messages, beside the time that no
// order can beat. Pure functions of a run and of measured times. The time of a whole step, with what data ranks
// exchange and with the update, is that of train/plan/step_prediction.hpp.

#include "comm/simulation/machine_model.hpp"
#include "parallel/program/part_times.hpp"
#include "train/plan/resolved_run.hpp"

#include <string>

namespace trainstone {

struct PipelinePrediction {
  double seconds = 0;       ///< from the first forward to the last backward
  double idle_share = 0;    ///< of all stages' time
  double bound_seconds = 0; ///< no order on these stages takes less, without messages
};

/// \param[in] parts  measured under the conditions of the run
/// \throws InputError without a pipeline, Error if a part has no times
PipelinePrediction predict_pipeline(ResolvedRun const& run, PartTimes const& parts, MachineModel const& machine);

/// "pipeline: 0.7 s, of which the stages idle 16 %; ..."
std::string to_string(PipelinePrediction const& prediction);

} // namespace trainstone
