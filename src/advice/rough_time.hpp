#pragma once

// A rough time of a step: what a stage computes and sends, one after the other. Says only in which order ways are worth
// a timeline. Pure.

#include "advice/step_machine.hpp"
#include "advice/way.hpp"

namespace trainstone {

/// In s. Communication over data ranks hides behind one backward of a micro-batch. \param[in] first  plan of the first
/// stage     Complexity: O(1) in ranks, layers and micro-batches.
double rough_seconds(Way const& way, ResolvedRun const& run, RunPlan const& first, PartTimes const& times,
                     StepMachine const& machine);

} // namespace trainstone
