#pragma once

// Time: plays schedules, of which only what takes time is left (a fraction of their memory), on ranks that have so many
// ports. Owns when rounds begin and end; who gets the ports is port_queues.hpp's. No rank's number decides anything, so
// that symmetric schedules take the same time on all ranks, and one rank may be played for all that do the same. For
// the simulator alone.

#include "comm/schedule/partition.hpp"

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
  bool between_nodes;
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
  Rank first_neighbour; ///< names the neighbours that it waits for
  std::size_t neighbours;
  int node;
};

struct TimedSchedules {
  std::vector<TimedMessage> messages;
  std::vector<TimedRound> rounds;
  std::vector<TimedRank> ranks;
  double barrier_seconds;
  int ports;      ///< of a rank, in each direction
  int node_ports; ///< of a node, for messages between nodes; 0: any number
};

/// Seconds until the last rank's end; nothing if a rank waits for ever. Ranks 0 ... k-1 of `timed` are played for all
/// `ranks`, a multiple of k.
std::optional<double> play(TimedSchedules const& timed, Rank ranks, Motion motion);

} // namespace trainstone::Impl
