#include "comm/schedule/topology.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <utility>

namespace trainstone {

std::string_view to_string(Link link) { return link == Link::intra ? "intra" : "inter"; }

Topology Topology::one_node(Rank ranks) { return block(ranks, 1); }

Topology Topology::block(Rank ranks, int nodes) {
  TRAINSTONE_REQUIRE(nodes >= 1 && nodes <= ranks, "{} ranks cannot be placed on {} nodes", ranks, nodes);
  Partition const placement = Partition::even(ranks, nodes);
  std::vector<int> node_of_rank;
  for (int node = 0; node < nodes; ++node)
    node_of_rank.insert(node_of_rank.end(), static_cast<std::size_t>(placement.size(node)), node);
  return Topology(std::move(node_of_rank));
}

Topology Topology::cyclic(Rank ranks, int nodes) {
  TRAINSTONE_REQUIRE(nodes >= 1 && nodes <= ranks, "{} ranks cannot be placed on {} nodes", ranks, nodes);
  std::vector<int> node_of_rank;
  for (Rank rank = 0; rank < ranks; ++rank) node_of_rank.push_back(rank % nodes);
  return Topology(std::move(node_of_rank));
}

Topology::Topology(std::vector<int> node_of_rank) : m_node_of_rank(std::move(node_of_rank)) {
  TRAINSTONE_REQUIRE(!m_node_of_rank.empty(), "a topology needs at least one rank");
  TRAINSTONE_REQUIRE(std::ranges::min(m_node_of_rank) >= 0, "node {} is negative", std::ranges::min(m_node_of_rank));
  m_members.resize(static_cast<std::size_t>(std::ranges::max(m_node_of_rank)) + 1);
  for (Rank rank = 0; rank < ranks(); ++rank) m_members[static_cast<std::size_t>(node_of(rank))].push_back(rank);
  for (int const node : m_node_of_rank) m_fingerprint.add(static_cast<std::uint64_t>(node));
  m_ring_position.resize(m_node_of_rank.size());
  for (std::vector<Rank> const& node : m_members) {
    TRAINSTONE_REQUIRE(!node.empty(), "one of {} nodes has no rank", m_members.size());
    for (Rank const rank : node) {
      m_ring_position[static_cast<std::size_t>(rank)] = static_cast<Rank>(m_ring.size());
      m_ring.push_back(rank);
    }
  }
}

Topology Topology::of(std::vector<Rank> const& members) const {
  std::vector<int> number_of_node(m_members.size(), -1), node_of_member;
  node_of_member.reserve(members.size());
  int seen = 0;
  for (Rank const member : members) {
    int& number = number_of_node[static_cast<std::size_t>(node_of(member))];
    if (number < 0) number = seen++;
    node_of_member.push_back(number);
  }
  return Topology(std::move(node_of_member));
}

} // namespace trainstone
