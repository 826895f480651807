#pragma once

// The idle time of a pipeline, from the times that its stages have measured in a step, beside the closed form and the
// simulation with the same times. Pure functions. Does not measure (train/stage_clock.hpp).

#include "parallel/pipeline/pipeline_bound.hpp"

#include <optional>
#include <string_view>
#include <vector>

namespace trainstone {

/// What a stage took in one step, in s.
struct StageTimes {
  double until_end = 0;              ///< from the common begin of all stages to the end of its last backward
  std::vector<double> forward = {};  ///< by chunk: sum over micro-batches; where the model ends, head and loss included
  std::vector<double> backward = {}; ///< by chunk: sum over micro-batches; what is computed again included

  double busy() const;
};

/// Of one step; times in s.
struct PipelineBubble {
  double seconds = 0;                       ///< T: until the last stage has ended its last backward
  std::vector<double> busy = {};            ///< by stage: sum of what it computed
  double idle_share = 0;                    ///< sum of idle times / (stages x T)
  double idle_ratio = 0;                    ///< sum of idle times / sum of busy times
  std::optional<double> formula_share = {}; ///< idle_share by the closed form for equal stages, if there is one
  double simulated_share = 0;   ///< idle_share of the simulation with the mean time of every operation, stage and chunk
  double message_seconds = 0;   ///< of a message in the simulation
  PipelineTimeParts parts = {}; ///< stages x T = busy + unavoidable + imbalance + order + messages + rest
};

/// \param[in] program   of a training that does not split backward
/// \param[in] schedule  its name
/// \param[in] stages    one for every stage, with all its chunks
/// \param[in] message_seconds  of a message, as far as it is known; 0: messages become a part of the rest
PipelineBubble pipeline_bubble(PipelineProgram const& program, std::string_view schedule,
                               std::vector<StageTimes> const& stages, double message_seconds);

/// The one with the median idle share, of two the lower one. All its figures belong to one step. Not empty.
PipelineBubble median_bubble(std::vector<PipelineBubble> steps);

} // namespace trainstone
