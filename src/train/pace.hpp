#pragma once

// Blocks that take a given time (faults.pace), so that more stages of a pipeline than cores still compute side by side.
// An instruction that computes a part of a block sleeps until it has taken its time. Attention and mlp have one half of
// the block's time each. Pieces of a backward have equal shares. Embed, head and loss have their own time, and so has
// what a block computes again before its backward. A straggler is a rank whose times are a factor longer. Random
// stragglers multiply the times of every rank by a factor of its own in every step.

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
/// The problem of the straggler's rank, if there is one. \param[in] servers  the last ranks, which have no pace
std::optional<ConfigProblem> find_pace_problem(FaultConfig const& faults, std::int64_t ranks, std::int64_t servers);

/// The factor on a rank's times in its step number `clock`, from 1: the one of faults.straggler.rank, times
/// exp(sigma z - sigma^2/2), whose mean is 1, with a normal number z of the seed, the rank and the clock. Clock 0 is no
/// step of the training and has no random factor.
double straggler_factor(FaultConfig const& faults, std::int64_t rank, std::int64_t clock);

class Pace {
public:
  Pace(FaultConfig const& faults, std::int64_t rank);

  /// From now on times are those of this step; 0: of none.
  void begin(std::int64_t clock);

  /// The least time of an instruction on this rank, in s; 0: it is not paced.
  double least_seconds(Instruction const& instruction, PartTable const& parts) const;

private:
  FaultConfig m_faults;
  std::int64_t m_rank;
  double m_factor;
};

/// Sleeps until so many seconds have passed since `begin`. Meanwhile it calls between_launches(), as a launch of a
/// kernel does, so messages go on where kernels drive them.
void sleep_until_passed(SteadyTime begin, double seconds);

/// Times of parts that take at least their pace. The longer pace of stragglers is not in them.
PartTimes paced(PartTimes times, FaultConfig const& faults);

} // namespace trainstone
