#pragma once

// Messages that hold each other up in the network between nodes: lengthens those of timed schedules. Messages of rounds
// of the same number are taken to be under way at the same time, on all lines that do the same. For the simulator
// alone.

#include "comm/simulation/machine_model.hpp"
#include "comm/simulation/timed_playback.hpp"

#include <vector>

namespace trainstone::Impl {

/// Where the ranks of the played schedules sit, and all others that do the same at the same time.
struct PlacedLines {
  Rank ranks;             ///< of a line
  std::vector<int> nodes; ///< line after line
};

/// A message that is played for many is as slow as the slowest of these.
/// \param[in] wire    by message of `timed`: seconds that grow with its bytes, alone
/// \param[in] motion  how rank r + k does what rank r does, if ranks 0 ... k-1 are played
/// Complexity: O(all ranks x messages of one in a round x different rounds); memory: O(nodes + cuts)
void lengthen(TimedSchedules& timed, std::vector<double> const& wire, MachineModel const& machine,
              PlacedLines const& lines, Motion motion);

} // namespace trainstone::Impl
