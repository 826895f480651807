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

/// The step of the trace with the median duration, of the first rank of the class.
struct MeasuredStep {
  std::string deck_hash; ///< of the traced run; empty: the trace does not say
  double milliseconds = 0;
  std::vector<MeasuredTime> entries;           ///< by entry of the class
  std::vector<MeasuredCollective> collectives; ///< those under way during the step, in order of their begin
};

/// \throws InputError if the file is no trace, is of another number of ranks, or has no step with all instructions of
///                    the class
MeasuredStep read_measured_step(std::string const& path, ClassTimeline const& one, ShardPlan const& plan);

} // namespace trainstone
