#pragma once

// comm.allreduce = "measured" and its like: which algorithms carry a training's collectives, found out when a run
// starts. Owns which algorithms are tried, with which message and on which ranks. Promises: all ranks get the same
// choice, and each choice is an algorithm that the deck could have named.

#include "commands.hpp"

#include "result/result.hpp"
#include "train/plan/resolved_run.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace trainstone {

/// One choice for every key that the run leaves to a measurement. A key has none if its collective is not used: by the
/// strategy, or because there is one rank. All groups of ranks try at once, as they will train, and the choice of the
/// first rank's group holds for all. A trial takes some milliseconds per algorithm, or eight calls where these take
/// longer. Before it, every rank makes and prices a schedule per algorithm and group.
/// Collective, after the communicator has its buffers.
/// \param[in] asked       the run without any measurement
/// \param[in] neighbours  ranks of this machine
/// \return in the order of algorithm_keys; `seconds` are those of this rank's group
/// \throws CollectiveError (exit 64) naming a rank that would try something else than the first one
/// \throws Error (exit 69) if a machine lacks the memory of a trial: a message and its scratch for every rank
std::vector<ChosenAlgorithm> find_fastest_collectives(RankContext& context, std::int64_t neighbours,
                                                      ResolvedRun const& asked);

/// "comm.allreduce measured with 256 KiB on 2 ranks: shared takes 57.2 us, ring as the next of 14 algorithms 63.1 us"
std::string chosen_line(ChosenAlgorithm const& chosen);

} // namespace trainstone
