#pragma once

// A run whose workers do not wait for each other: its training, and the checks that take the place of a golden curve.

#include "run_training.hpp"

namespace trainstone {

/// Trains to the end, or to a low enough held-out loss. Workers wait for each other where held-out losses are due, and
/// that time is not counted. A step of the result is as many pushes as there are workers. Collective.
Training train_with_servers(PreparedRun const& run, RunMemory& memory, StepListener const& listener);

/// Who may begin when, with pauses for held-out losses.
ServerPolicy policy_of(PreparedRun const& run);

/// As check_collectives(), between each worker and all servers. Collective.
Check check_collectives_with_servers(PreparedRun const& run, RankContext& context);

/// What this rank has sent since the run began, for pushes and pauses, without validations: predicted from the record.
Traffic predicted_traffic(PreparedRun const& run, ServedTraining const& served);

/// Of replicas, messages and pushes. Collective.
std::vector<Check> verify_with_servers(PreparedRun const& run, Training const& training, RankContext& context);

} // namespace trainstone
