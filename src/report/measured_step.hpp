#pragma once

// A step of a run's trace, to be laid over a predicted one. Owns which step is taken, and how its instructions are
// found again: by their texts, in order. Reads traces of result/trace.hpp.

#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/step_timeline.hpp"

#include <string>
#include <vector>

namespace trainstone {

struct MeasuredTime {
  double begin = 0; ///< ms since the step began
  double milliseconds = 0;
  bool operator==(MeasuredTime const&) const = default;
};

struct MeasuredCollective {
  std::string name;
  MeasuredTime time; ///< from its start to its end; begins before the step if it was under way then
};

/// The first rank of a class.
struct MeasuredClass {
  std::vector<MeasuredTime> entries;           ///< by entry of the class
  std::vector<MeasuredCollective> collectives; ///< those under way during the step, in order of their begin
};

/// The step of the trace that has the median duration, on the first rank of each class. A step takes as long as on the
/// rank on which it takes longest. Times begin where the first of these ranks begins the step.
struct MeasuredStep {
  std::string deck_hash; ///< of the traced run; empty: the trace does not say
  double milliseconds = 0;
  std::vector<MeasuredClass> classes;
};

/// \param[in] stages  by stage, the plan that gives the instructions of the timeline their names
/// \throws InputError if the file is no trace, is of another number of ranks, or has no step with all instructions of
///                    the classes
MeasuredStep read_measured_step(std::string const& path, StepTimeline const& timeline,
                                std::vector<ShardPlan> const& stages);

} // namespace trainstone
