#pragma once

// Where ranks sit. Owns the map from ranks to nodes and what follows from it: who shares a node, which messages cross
// a node border, and a ring through all ranks that crosses each border once. A plain value, also of machines that do
// not exist here: schedules of 65,536 ranks are priced on one. Copies share their tables, so that every problem of a
// plan can have a topology.

#include "comm/schedule/partition.hpp"

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace trainstone {

/// The kinds of connection between two ranks.
enum class Link {
  intra, ///< both on one node
  inter, ///< across a node border
};

inline constexpr std::size_t link_count = 2;

std::string_view to_string(Link link);

class Topology {
public:
  /// All ranks on one node. \throws Error unless ranks >= 1
  static Topology one_node(Rank ranks);
  /// Ranks in blocks: the first ones on node 0, and so on; block sizes differ by at most one.
  /// \throws Error unless 1 <= nodes <= ranks
  static Topology block(Rank ranks, int nodes);
  /// Rank r on node r mod `nodes`.
  static Topology cyclic(Rank ranks, int nodes);
  /// \param[in] node_of_rank per rank; nodes are 0 ... n-1, each with at least one rank
  explicit Topology(std::vector<int> node_of_rank);

  /// Of some of the ranks, in the given order; nodes are numbered as they appear.
  Topology of(std::vector<Rank> const& members) const;

  Rank ranks() const { return static_cast<Rank>(m_tables->node_of_rank.size()); }
  int nodes() const { return static_cast<int>(m_tables->members.size()); }
  int node_of(Rank rank) const { return m_tables->node_of_rank[static_cast<std::size_t>(rank)]; }
  Link link(Rank a, Rank b) const { return node_of(a) == node_of(b) ? Link::intra : Link::inter; }
  /// The ranks of a node, ascending.
  std::vector<Rank> const& members(int node) const { return m_tables->members[static_cast<std::size_t>(node)]; }
  /// The ranks of this rank's node, itself included, ascending.
  std::vector<Rank> const& neighbours(Rank rank) const { return members(node_of(rank)); }
  /// All ranks, node after node: neighbours in this order (and last to first) make the ring.
  std::vector<Rank> const& ring() const { return m_tables->ring; }
  /// Where a rank stands in ring().
  Rank ring_position(Rank rank) const { return m_tables->ring_position[static_cast<std::size_t>(rank)]; }
  /// Of the ranks' nodes.
  Fingerprint const& fingerprint() const { return m_tables->fingerprint; }
  bool operator==(Topology const& other) const {
    return m_tables == other.m_tables || m_tables->node_of_rank == other.m_tables->node_of_rank;
  }

private:
  struct Tables {
    std::vector<int> node_of_rank;
    std::vector<std::vector<Rank>> members;
    std::vector<Rank> ring;
    std::vector<Rank> ring_position;
    Fingerprint fingerprint;
  };

  std::shared_ptr<Tables const> m_tables;
};

} // namespace trainstone
