#pragma once

// The network that a run emulates, for studies of slow networks on one machine. Owns the clock of a rank's outgoing
// port, which sends one message after the other. It only computes times: the sender must keep messages back until then.

#include <chrono>
#include <cstdint>
#include <mutex>

namespace trainstone {

/// A message of S bytes keeps its sender's port busy for latency + seconds_per_byte x S, and has arrived then.
struct EmulatedNetwork {
  double latency = 0;          ///< s
  double seconds_per_byte = 0; ///< 0 = no limit
  bool is_slow() const { return latency > 0 || seconds_per_byte > 0; }
  /// What a message takes, in s.
  double seconds(double bytes) const { return latency + seconds_per_byte * bytes; }
};

/// The port of one rank. Any thread may send.
class OutPort {
public:
  using Time = std::chrono::steady_clock::time_point;

  explicit OutPort(EmulatedNetwork const& network) : m_network(network) {}

  /// When a message that is posted now has gone through the port, behind all earlier ones.
  Time send(Time now, std::uint64_t bytes);

private:
  EmulatedNetwork m_network;
  std::mutex m_mutex;
  Time m_free{}; ///< nothing is in the port from then on
};

} // namespace trainstone
