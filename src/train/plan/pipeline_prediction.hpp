#pragma once

// What the order of a pipeline alone costs: the simulated timeline of its chunks and messages, beside the time that no
// order can beat. Has the prices of train/plan/step_prediction.hpp, which predicts the whole step. Pure functions.

#include "train/plan/step_prediction.hpp"

#include <string>
#include <vector>

namespace trainstone {

struct PipelinePrediction {
  double seconds = 0;       ///< from the first forward to the last backward
  double idle_share = 0;    ///< of all stages' time
  double bound_seconds = 0; ///< no order on these stages takes less: without messages, and every operation of a chunk
                            ///< as short as in the micro-batch in which it is shortest
};

/// Operations have the mean time of their micro-batches. \param[in] stages  plan_stages() of a run with a pipeline
/// \throws Error if a part has no times
PipelinePrediction predict_pipeline(ParallelConfig const& parallel, std::vector<RunPlan> const& stages,
                                    PartTimes const& parts, MachineModel const& machine,
                                    EmulatedNetwork const& network);

/// "pipeline: 0.7 s, of which the stages idle 16 %; ..."
std::string to_string(PipelinePrediction const& prediction);

} // namespace trainstone
