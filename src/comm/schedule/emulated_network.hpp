#pragma once

// The network that a run emulates, for studies of slow networks on one machine. Plain values: what messages take inside
// and between nodes, and what they occupy meanwhile. Who emulates it is comm/execution/network_ports.hpp.

#include "comm/schedule/topology.hpp"

#include <array>
#include <cstddef>

namespace trainstone {

/// A message of S bytes takes latency + seconds_per_byte x S.
struct EmulatedLink {
  double latency = 0;          ///< s
  double seconds_per_byte = 0; ///< 0 = no limit
  bool is_slow() const { return latency > 0 || seconds_per_byte > 0; }
  /// What a message takes, in s.
  double seconds(double bytes) const { return latency + seconds_per_byte * bytes; }
  bool operator==(EmulatedLink const&) const = default;
};

/// A message occupies a port of its sender and a port of its receiver as long as it takes. A rank has one port in each
/// direction.
struct EmulatedNetwork {
  std::array<EmulatedLink, link_count> links; ///< by Link
  /// A node has one port in each direction for messages to and from other nodes, which its ranks share.
  bool node_port = false;

  static EmulatedNetwork uniform(EmulatedLink const& link) { return {{link, link}}; }

  EmulatedLink const& of(Link link) const { return links[static_cast<std::size_t>(link)]; }
  bool is_slow() const { return of(Link::intra).is_slow() || of(Link::inter).is_slow(); }
  bool operator==(EmulatedNetwork const&) const = default;
};

} // namespace trainstone
