#pragma once

// Plays the step programs of all ranks in one process, without MPI and without data. Owns the proof that the programs
// do what a data-parallel training is: every micro-batch of every rank enters every gradient exactly once, parameters
// of one version are read, memory is not written while something that was started uses it, and no rank waits for ever.
// Promises: a proved set of programs is right with any timing. Between the start of a collective and the wait for it,
// the simulator takes the collective's memory and scratch to be in use, and it refuses programs that let timing decide
// the order of collectives in a communicator. It does not prove in which order numbers are added. Does not know how a
// collective works inside: comm/simulation proves that.

#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/instruction.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

enum class StepDefect {
  undefined_read,       ///< tokens, activations, parameters or gradients are read that are not there
  old_parameters,       ///< parameters are read that an update has changed since
  written_while_used,   ///< memory is written while something that was started uses it
  waits_for_ever,       ///< a rank waits for a collective that another rank does not start
  not_started,          ///< a wait for what was not started
  never_waited,         ///< what was started, and nothing waits for it
  other_order,          ///< two ranks start different collectives in the same place of a communicator's order
  order_by_timing,      ///< it depends on timing which of two collectives of a communicator starts first
  never_read,           ///< parameters are gathered, and no part reads them
  incomplete,           ///< a step, an update or an evaluation lacks one of its acts, or has it twice
  malformed,            ///< an instruction names a part, unit, bucket or micro-batch that does not exist
  missing_contribution, ///< a gradient ends without that of some micro-batch
  doubled_contribution, ///< a gradient ends with that of some micro-batch twice
};

std::string_view to_string(StepDefect defect);

struct StepFinding {
  StepDefect defect;
  Rank rank;           ///< where it shows
  std::string message; ///< names the instruction, and what is wrong with it
};

/// The first defect of the programs of all ranks, played as a short training: steps with updates, a step whose update
/// is skipped, and an evaluation between two steps. None: proved.
/// \param[in] plans     of all ranks of a run      \param[in] programs  one for each rank
/// Complexity: O(ranks x instructions x parts of buckets x owners).
std::optional<StepFinding> find_step_defect(std::vector<ShardPlan> const& plans,
                                            std::vector<StepProgram> const& programs);

} // namespace trainstone
