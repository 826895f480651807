#pragma once

// Time: plays schedules on a modelled machine whose ranks have so many ports. Owns what of the schedules takes time (a
// fraction of their memory) and the order in which messages get the ports: whenever a port of the sender and one of
// the receiver are free and both have posted, the message goes that comes first in its sender's round, then in its
// receiver's. No rank's number decides anything, so that symmetric schedules take the same time on all ranks, and one
// rank may be played for all that do the same. For the simulator alone.

#include "comm/schedule.hpp"
#include "comm/simulation/machine_model.hpp"

#include <cstddef>
#include <optional>
#include <vector>

namespace trainstone::Impl {

/// How rank r + k does what rank r does, if ranks 0 ... k-1 are played for all: its peers are moved by k, or by the
/// bits of k.
enum class Motion { shift, exchange };

/// What takes time in one rank's schedule.
struct TimedMessage {
  double seconds;
  Rank peer;
  bool sends;
};
struct TimedRound {
  double early_seconds; ///< local moves while messages are under way
  double late_seconds;  ///< and when they are complete
  std::size_t first_message;
  std::size_t last_message;
  bool node_barrier;
};
struct TimedRank {
  std::size_t first_round;
  std::size_t last_round;
  Rank first_neighbour; ///< names its node
  std::size_t neighbours;
};

struct TimedSchedules {
  std::vector<TimedMessage> messages;
  std::vector<TimedRound> rounds;
  std::vector<TimedRank> ranks;
  double barrier_seconds;
  int ports;
};

class PortSimulation {
public:
  /// Both must outlive the simulation.
  PortSimulation(MachineModel const& machine, Topology const& topology, std::size_t element_bytes);

  /// The schedule of the next rank, from 0 on. It is not needed any more on return.
  void add(Schedule const& schedule);

  /// Seconds until the last rank's end; nothing if a rank waits for ever. Ranks 0 ... k-1 that have been added are
  /// played for all ranks of the topology, whose number is a multiple of k. May be repeated.
  std::optional<double> run(Motion motion = Motion::shift) const;

private:
  double local_seconds(Schedule const& schedule, Move const& move) const;

  MachineModel const& m_machine;
  Topology const& m_topology;
  std::size_t m_element_bytes;
  TimedSchedules m_timed;
};

} // namespace trainstone::Impl
