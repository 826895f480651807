#pragma once

// Resolves a run on its ranks: emulates the nodes and the network that the deck asks for, gives the communicator its
// buffers, measures what the deck leaves to a measurement, and puts the findings into the resolved run. No other file
// of a run changes its configuration.

#include "commands.hpp"

#include "result/result.hpp"
#include "train/plan/resolved_run.hpp"

#include <string>
#include <vector>

namespace trainstone {

/// The real places of ranks.
struct Placement {
  NodeMap machines;
  std::vector<std::string> devices; ///< by rank: devices_of_ranks()
  std::vector<std::string> cores;   ///< by rank: number_ranges(cores_of_threads())
};
/// Collective. \param[in] world  without emulated nodes
Placement placement_of(Communicator const& world);

/// Number of ranks on the machine of `rank`, including `rank`.
std::int64_t ranks_beside(NodeMap const& machines, Rank rank);

/// A resolved run, and how its choices were made.
struct ChosenRun {
  ResolvedRun run;
  std::vector<ChosenAlgorithm> collectives; ///< find_fastest_collectives()
  std::vector<std::string> notes;           ///< for the output
};

/// Replaces context.communicator by one with the nodes, the network and the buffers of the run. Collective.
/// \param[in] config     of resolve(), which resolve_run() does not refuse    \param[in] placement  of the real ranks
/// \throws CollectiveError (exit 64) if this MPI has no such buffers, (exit 69) if there is no memory for a measurement
ChosenRun choose_run(RunConfig const& config, Placement const& placement, RankContext& context);

} // namespace trainstone
