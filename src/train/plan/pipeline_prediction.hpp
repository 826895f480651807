#pragma once

// Predicts the time of a step on the stages of a pipeline: the simulated timeline of its chunks and messages, and what
// follows the last backward. Pure functions of a run and of measured times.

#include "comm/simulation/machine_model.hpp"
#include "parallel/program/part_times.hpp"
#include "train/plan/resolved_run.hpp"

#include <string>

namespace trainstone {

struct PipelinePrediction {
  double pipeline_seconds = 0; ///< from the first forward to the last backward
  double busiest_seconds = 0;  ///< that the stage computes which computes most
  double idle_share = 0;       ///< of all stages, in the pipeline
  double bound_seconds = 0;    ///< no order on these stages takes less, without messages
  double update_seconds = 0;   ///< norm and update of the stage with most parameters
  double exchange_seconds = 0; ///< collectives among data ranks, and the sum of the token table's gradient; as if
                               ///< nothing hid them

  double step_seconds() const { return pipeline_seconds + update_seconds + exchange_seconds; }
};

/// \param[in] parts  measured under the conditions of the run
/// \throws InputError without a pipeline, Error if a part has no times
PipelinePrediction predict_pipeline(ResolvedRun const& run, PartTimes const& parts, MachineModel const& machine);

/// "predicted step 0.8 s: 0.7 s of a pipeline that idles 16 %, ..."
std::string to_string(PipelinePrediction const& prediction);

} // namespace trainstone
