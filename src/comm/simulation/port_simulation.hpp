#pragma once

// The price of schedules on a modelled machine. Owns what each of their moves takes there, which is all that it keeps
// of them; plays that (timed_playback.hpp). For the simulator alone.

#include "comm/schedule/schedule.hpp"
#include "comm/simulation/contention.hpp"
#include "comm/simulation/machine_model.hpp"
#include "comm/simulation/timed_playback.hpp"

#include <cstddef>
#include <optional>

namespace trainstone::Impl {

class PortSimulation {
public:
  /// Machine and topology must outlive the simulation. \param[in] placement  see price() in simulator.hpp
  PortSimulation(MachineModel const& machine, Topology const& topology, std::size_t element_bytes,
                 std::vector<int> placement = {});

  /// The schedule of the next rank, from 0 on. It is not needed any more on return.
  void add(Schedule const& schedule);

  /// Seconds until the last rank's end; nothing if a rank waits for ever. Ranks 0 ... k-1 that have been added are
  /// played for all ranks of the topology, whose number is a multiple of k. May be repeated.
  std::optional<double> run(Motion motion = Motion::shift) const;

private:
  double local_seconds(Schedule const& schedule, Move const& move, double touched) const;

  MachineModel const& m_machine;
  Topology const& m_topology;
  std::size_t m_element_bytes;
  TimedSchedules m_timed;
  PlacedLines m_lines;
  std::vector<double> m_wire; ///< by message, if the network holds messages up
};

} // namespace trainstone::Impl
