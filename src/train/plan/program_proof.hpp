#pragma once

// Proves the step programs of a run before anything is allocated: the simulator plays the programs of all ranks
// (parallel/program/step_simulator.hpp). Plays only what takes about 0.1 s or less, so that no run waits for it.

#include "parallel/program/instruction.hpp"
#include "train/plan/resolved_run.hpp"

#include <vector>

namespace trainstone {

/// Instructions that all ranks together run in a step, an update and an evaluation. The time of a proof grows with it.
Index played_instructions(StepProgram const& program, Index ranks);

/// The largest number of instructions that prove_programs() plays. On one core of a Zen 4, an instruction takes 1 us
/// with some tens of buckets, and 20 us with a thousand.
inline constexpr Index most_played_instructions = 4'000;

/// Plays the programs of all ranks of the run, unless they have too many instructions. Of a pipeline that has too many,
/// plays the programs of a step with as many micro-batches as stages. The chunks and messages of a pipeline are always
/// played. \return whether it has played programs of instructions
/// \throws Error (exit 70) naming the first wrong instruction and its rank
bool prove_programs(ResolvedRun const& run);

/// \throws Error (exit 70) as above
void require_proved(std::vector<ShardPlan> const& plans, std::vector<StepProgram> const& programs);

} // namespace trainstone
