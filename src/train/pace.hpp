#pragma once

// Blocks that take a given time (faults.pace), so that more stages of a pipeline than cores still compute side by side.
// An instruction that computes a part of a block sleeps until it has taken its time. Attention and mlp have one half of
// the block's time each. Pieces of a backward have equal shares. Embed, head and loss have their own time, and so has
// what a block computes again before its backward. A straggler is a rank whose times are a factor longer.

#include "core/clock.hpp"
#include "core/error.hpp"
#include "model/part.hpp"
#include "parallel/program/instruction.hpp"
#include "parallel/program/part_times.hpp"
#include "train/plan/config.hpp"

#include <cstdint>
#include <optional>

namespace trainstone {

/// The problem of pace and straggler without regard to the number of ranks, if there is one.
std::optional<ConfigProblem> find_pace_problem(FaultConfig const& faults);
/// The problem of the straggler's rank, if there is one.
std::optional<ConfigProblem> find_pace_problem(FaultConfig const& faults, std::int64_t ranks);

class Pace {
public:
  Pace(FaultConfig const& faults, std::int64_t rank);

  /// The least time of an instruction on this rank, in s; 0: it is not paced.
  double least_seconds(Instruction const& instruction, PartTable const& parts) const;

private:
  double m_forward, m_backward; ///< of a part, in s
};

/// Sleeps until so many seconds have passed since `begin`. Meanwhile it calls between_launches(), as a launch of a
/// kernel does, so messages go on where kernels drive them.
void sleep_until_passed(SteadyTime begin, double seconds);

/// Times of parts that take at least their pace. The longer pace of a straggler is not in them.
PartTimes paced(PartTimes times, FaultConfig const& faults);

} // namespace trainstone
