#pragma once

// Closed forms of pipelines with equal stages, as textbooks print them: what the simulation must find. Pure functions.
// A schedule without closed forms has none here, and everything else works with it.

#include "parallel/pipeline/pipeline_timeline.hpp"

#include <optional>
#include <string_view>
#include <vector>

namespace trainstone {

/// p stages, m micro-batches, v chunks per stage; forward f, gradients of inputs b and of parameters w of a stage.
struct PipelineFormulas {
  Ticks time = 0;                             ///< without messages
  double bubble_ratio = 0;                    ///< idle time / computing time
  std::vector<Index> in_flight = {};          ///< by stage: chunks whose activations are kept at a time
  Index messages = 0;                         ///< of all stages: 2 m (p v - 1)
  std::optional<Index> exposed_messages = {}; ///< times of a short message that add to the time; none: no closed form

  /// Idle time / all time.
  double bubble_share() const { return bubble_ratio / (1 + bubble_ratio); }
};

/// The closed forms of a schedule, if it has any; src/README.md has them as a table.
/// b includes w but for zb-h1, whose closed forms hold for w <= f and w <= b. A message is shorter than every
/// operation.
/// \param[in] stage  times of a stage; the number of chunks divides them
/// \return none if there are no closed forms for this schedule or these times
std::optional<PipelineFormulas> pipeline_formulas(std::string_view schedule, PipelineShape const& shape,
                                                  ChunkPrice const& stage);

} // namespace trainstone
