#pragma once

// The timeline of a run's step, predicted from the times of parts in a machine file. Refuses a file that was not
// measured for such a run. Pure, but for the file's name in messages. Shared by `explain` and `report`.

#include "comm/measurement/buffers_choice.hpp"
#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/step_timeline.hpp"
#include "result/machine_file.hpp"
#include "train/plan/resolved_run.hpp"

#include <optional>
#include <string>
#include <vector>

namespace trainstone {

struct PredictedStep {
  std::vector<ShardPlan> stages; ///< by stage, the plan of its first rank: gives the instructions their names
  StepTimeline timeline;
};

/// \param[in] path     of the machine's file, for messages
/// \param[in] buffers  those of a run that was made; nothing: the run is imagined, with the buffers of the file
/// \throws InputError  if the machine has no times of the run's parts, or of messages between such ranks
PredictedStep predicted_step(ResolvedRun const& run, std::string const& path, MeasuredMachine const& machine,
                             std::optional<BuffersChoice> const& buffers = {});

} // namespace trainstone
