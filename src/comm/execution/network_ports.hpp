#pragma once

// The ports of an emulated network. Owns when each port is busy, in memory that all ranks of a machine share: messages
// that many ranks send to one rank go through its port one after the other. Only computes times: the sender must keep a
// message back until it has gone through its ports. For src/comm/execution alone.
//
// A message goes as packets do: it takes the time in which all of its ports are free, in one piece or in several,
// between what was posted before. So a rank that has posted messages to several others does not keep their ports from
// third ones until its own port comes to them.

#include "comm/schedule/emulated_network.hpp"
#include "comm/schedule/partition.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trainstone {
class Communicator;
}

namespace trainstone::Impl {

/// When each of some ports is busy, in memory that processes share. Any thread of any of them may take ports.
class PortClocks {
public:
  using Time = std::chrono::steady_clock::time_point;

  static std::size_t bytes(std::size_t ports);
  /// \param[in] memory  bytes(ports), aligned to 64 bytes, zero before the first object is made of it; must outlive it
  explicit PortClocks(std::byte* memory);

  /// When something has gone through all the ports together that occupies each of them for `busy`, in the first time
  /// from `now` on in which all of them are free. Nothing takes less than 1 ns.
  /// Complexity: O(what is booked), up to `most_booked` intervals per port
  Time take(std::span<std::size_t const> ports, Time now, std::chrono::duration<double> busy) const;

  /// Intervals apart that a port remembers. What comes when there are more goes behind the last one.
  static constexpr std::size_t most_booked = 126;

private:
  struct Port;
  Port& port(std::size_t number) const;

  std::byte* m_memory; ///< a lock, then the ports
};

/// What a rank has on this machine. Numbers of ports.
struct RankPorts {
  int node;
  bool here; ///< else it has its ports on another machine
  std::size_t out, in, node_out, node_in;
};

/// The ports of this machine that a message goes through. \param[in] node_port  a node has one for all of its ranks
std::vector<std::size_t> ports_between(RankPorts const& sender, RankPorts const& receiver, bool node_port);

/// The ports that the messages of a communicator's rank go through.
class NetworkPorts {
public:
  using Time = PortClocks::Time;

  /// Collective over `communicator`, whose ranks get the ports of this network. Ranks of another machine have their
  /// ports there: messages to them occupy the sender's side alone. \param[in] machines  a communicator of the same
  /// ranks, without emulated nodes
  NetworkPorts(EmulatedNetwork const& network, Communicator const& communicator, Communicator const& machines);

  /// Of some of the ranks, in the given order.
  NetworkPorts of(std::vector<Rank> const& members) const;

  /// When a message of this rank that is posted now has gone through its ports, behind all earlier ones.
  Time send(Time now, Rank from, Rank to, std::uint64_t bytes) const;

private:
  EmulatedNetwork m_network;
  std::shared_ptr<PortClocks const> m_clocks; ///< with their memory
  std::vector<RankPorts> m_ends;              ///< by rank
};

} // namespace trainstone::Impl
