#pragma once

// The network between nodes beyond their own ports: which cuts of it messages cross, and what these pass. Owns the
// shapes (fat tree, dragonfly, torus) and the rule of contention: messages that are under way at the same time share a
// cut, and each is as much slower as its fullest cut is too full. A plain value. Does not know ranks and schedules.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trainstone {

/// Pods of nodes in block order: those of a level lie in pods of the next one. The switches of a pod pass
/// `nodes` x the bandwidth of a node / `taper` upwards, and as much downwards.
struct PodLevel {
  std::int64_t nodes = 1; ///< of a pod
  double taper = 1;       ///< 1: full bisection

  bool operator==(PodLevel const&) const = default;
};

struct Interconnect {
  enum class Kind {
    full,      ///< nothing but the ports of ranks and nodes holds up a message
    fat_tree,  ///< pods
    dragonfly, ///< groups of nodes in block order; each is linked to all others
    torus,     ///< nodes in a box, the first dimension fastest; links to both sides, also around
  };

  Kind kind = Kind::full;
  double node_bandwidth = 0;                 ///< fat tree: bytes per second of a node, each way
  std::vector<PodLevel> levels = {};         ///< fat tree: from the smallest pods on
  std::int64_t groups = 1;                   ///< dragonfly
  std::int64_t group_nodes = 1;              ///< dragonfly: nodes of a group
  std::int64_t global_links = 0;             ///< dragonfly: from a group to all others together
  double link_bandwidth = 0;                 ///< dragonfly: of a global link; torus: of a link; each way
  std::vector<std::int64_t> dimensions = {}; ///< torus

  bool operator==(Interconnect const&) const = default;
};

/// Bytes that one node sends to another one, per second where nothing holds them up.
struct NodeFlow {
  std::int64_t from = 0;
  std::int64_t to = 0;
  double rate = 0;
};

/// What flows that are there at once want of the cuts of a network. First all are added, then each is asked about. A
/// message of a fat tree goes over the least pod that holds both nodes. One of a dragonfly takes the links between both
/// groups, or all links of its group if that is faster though it passes two of them. One of a torus goes dimension by
/// dimension, the shorter way round. Memory: O(cuts that are crossed). The network must outlive the object.
class CutLoads {
public:
  explicit CutLoads(Interconnect const& network) : m_network(network) {}

  /// Complexity of both: O(levels, or hops)
  void add(NodeFlow const& flow);
  /// How many times as long as alone the flow takes for a byte: at least 1, and 1 inside a node.
  double slowdown(NodeFlow const& flow) const;

private:
  /// Calls visit(cut, what it passes) for the cuts of a flow; not of a dragonfly.
  template <class Visit>
  void for_each_cut(NodeFlow const& flow, Visit const& visit) const;
  double dragonfly_slowdown(NodeFlow const& flow) const;

  Interconnect const& m_network;
  std::unordered_map<std::uint64_t, double> m_loads;
  std::map<std::pair<std::int64_t, std::int64_t>, double> m_pairs; ///< of groups of a dragonfly
};

/// The slowdown of each of these flows, if all are there at once.
std::vector<double> slowdowns(Interconnect const& network, std::span<NodeFlow const> flows);

/// "fat tree of nodes of 25 GB/s, pods of 16 (taper 1), pods of 256 (taper 2)"
std::string to_string(Interconnect const& network);

/// Why it has no room for so many nodes; empty if it has.
std::string interconnect_problem(Interconnect const& network, std::int64_t nodes);

} // namespace trainstone
