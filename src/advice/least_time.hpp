#pragma once

// How long a step of a way takes at least. Owns a bound that is cheap and below the timeline of the step. Pure.

#include "parallel/program/part_times.hpp"
#include "train/plan/resolved_run.hpp"

namespace trainstone {

/// What the last stage computes in a step, behind the forwards and before the backwards of the earlier stages' first
/// chunks: the first micro-batch comes through these, and the last one goes back through them, and before and behind
/// all ranks of a step agree. Without a pipeline all that a rank computes. Communication and the update count nothing.
/// \param[in] times  of the run's parts
double least_seconds(ResolvedRun const& run, PartTimes const& times);

} // namespace trainstone
