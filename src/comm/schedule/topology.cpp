#include "comm/schedule/topology.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <deque>
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

Topology::Topology(std::vector<int> node_of_rank) {
  TRAINSTONE_REQUIRE(!node_of_rank.empty(), "a topology needs at least one rank");
  auto const [first, last] = std::ranges::minmax(node_of_rank);
  TRAINSTONE_REQUIRE(first >= 0, "node {} is negative", first);
  auto tables = std::make_shared<Tables>();
  tables->members.resize(static_cast<std::size_t>(last) + 1);
  tables->ring_position.resize(node_of_rank.size());
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    tables->members[static_cast<std::size_t>(node_of_rank[rank])].push_back(static_cast<Rank>(rank));
    tables->fingerprint.add(static_cast<std::uint64_t>(node_of_rank[rank]));
  }
  for (std::vector<Rank> const& node : tables->members) {
    TRAINSTONE_REQUIRE(!node.empty(), "one of {} nodes has no rank", tables->members.size());
    for (Rank const rank : node) {
      tables->ring_position[static_cast<std::size_t>(rank)] = static_cast<Rank>(tables->ring.size());
      tables->ring.push_back(rank);
    }
  }
  tables->node_of_rank = std::move(node_of_rank);
  m_tables = std::move(tables);
}

namespace {

/// Nodes are numbered as they appear.
Topology renumbered(Topology const& topology, std::vector<Rank> const& members) {
  std::vector<int> number_of_node(static_cast<std::size_t>(topology.nodes()), -1), node_of_member;
  node_of_member.reserve(members.size());
  int seen = 0;
  for (Rank const member : members) {
    int& number = number_of_node[static_cast<std::size_t>(topology.node_of(member))];
    if (number < 0) number = seen++;
    node_of_member.push_back(number);
  }
  return Topology(std::move(node_of_member));
}

} // namespace

/// A search plans thousands of runs on the same ranks, each with the same few lines: the last ones are remembered.
Topology Topology::of(std::vector<Rank> const& members) const {
  struct Part {
    std::shared_ptr<Tables const> whole;
    std::vector<Rank> members;
    Topology topology;
  };
  constexpr std::size_t most = 64;
  thread_local std::deque<Part> known;
  for (Part const& part : known)
    if (part.whole == m_tables && part.members == members) return part.topology;
  if (known.size() == most) known.pop_front();
  known.push_back({m_tables, members, renumbered(*this, members)});
  return known.back().topology;
}

} // namespace trainstone
