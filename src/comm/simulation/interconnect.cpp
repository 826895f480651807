#include "comm/simulation/interconnect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace trainstone {

namespace {

constexpr std::uint64_t most_kinds = 64;

/// \param[in] kind  below most_kinds: a level up or down, or a dimension and a side
std::uint64_t name_of(std::int64_t place, std::uint64_t kind) {
  return static_cast<std::uint64_t>(place) * most_kinds + kind;
}

constexpr std::uint64_t out = 0, in = 1; ///< of a dragonfly's group

bool is_between_nodes(NodeFlow const& flow) { return flow.from != flow.to && flow.rate > 0; }

// --- fat tree

/// Calls visit(cut, capacity) for the cuts of a flow.
template <class Visit>
void for_each_pod_cut(Interconnect const& network, NodeFlow const& flow, Visit const& visit) {
  std::uint64_t level = 0;
  for (PodLevel const& pods : network.levels) {
    std::int64_t const up = flow.from / pods.nodes, down = flow.to / pods.nodes;
    if (up == down) return; // of all larger pods, too
    double const capacity = static_cast<double>(pods.nodes) * network.node_bandwidth / pods.taper;
    visit(name_of(up, 2 * level), capacity);
    visit(name_of(down, 2 * level + 1), capacity);
    ++level;
  }
}

// --- torus

template <class Visit>
void for_each_torus_link(Interconnect const& network, NodeFlow const& flow, Visit const& visit) {
  std::int64_t at = flow.from, stride = 1;
  std::uint64_t direction = 0;
  for (std::int64_t const size : network.dimensions) {
    std::int64_t place = at / stride % size;
    std::int64_t const goal = flow.to / stride % size, ahead = (goal - place + size) % size;
    bool const upwards = 2 * ahead <= size;
    for (std::int64_t hops = upwards ? ahead : size - ahead; hops > 0; --hops) {
      visit(name_of(at, direction + (upwards ? 0 : 1)), network.link_bandwidth);
      std::int64_t const next = (place + (upwards ? 1 : size - 1)) % size;
      at += (next - place) * stride;
      place = next;
    }
    stride *= size;
    direction += 2;
  }
}

std::pair<std::int64_t, std::int64_t> groups_of(Interconnect const& network, NodeFlow const& flow) {
  return {flow.from / network.group_nodes, flow.to / network.group_nodes};
}

} // namespace

template <class Visit>
void CutLoads::for_each_cut(NodeFlow const& flow, Visit const& visit) const {
  if (m_network.kind == Interconnect::Kind::fat_tree) for_each_pod_cut(m_network, flow, visit);
  if (m_network.kind == Interconnect::Kind::torus) for_each_torus_link(m_network, flow, visit);
}

void CutLoads::add(NodeFlow const& flow) {
  if (!is_between_nodes(flow)) return;
  for_each_cut(flow, [&](std::uint64_t cut, double) { m_loads[cut] += flow.rate; });
  if (m_network.kind != Interconnect::Kind::dragonfly) return;
  auto const [from, to] = groups_of(m_network, flow);
  if (from == to) return;
  m_loads[name_of(from, out)] += flow.rate;
  m_loads[name_of(to, in)] += flow.rate;
  m_pairs[{from, to}] += flow.rate;
}

double CutLoads::slowdown(NodeFlow const& flow) const {
  if (!is_between_nodes(flow)) return 1;
  if (m_network.kind == Interconnect::Kind::dragonfly) return dragonfly_slowdown(flow);
  double slower = 1;
  for_each_cut(flow,
               [&](std::uint64_t cut, double capacity) { slower = std::max(slower, m_loads.at(cut) / capacity); });
  return slower;
}

double CutLoads::dragonfly_slowdown(NodeFlow const& flow) const {
  auto const [from, to] = groups_of(m_network, flow);
  if (from == to) return 1;
  double const all_links = static_cast<double>(m_network.global_links) * m_network.link_bandwidth,
               of_pair = all_links / static_cast<double>(std::max<std::int64_t>(1, m_network.groups - 1));
  double const of_group = std::max(m_loads.at(name_of(from, out)), m_loads.at(name_of(to, in))) / all_links;
  double const direct = m_pairs.at({from, to}) / of_pair, around = 2 * of_group;
  return std::max({1.0, of_group, std::min(direct, around)});
}

std::vector<double> slowdowns(Interconnect const& network, std::span<NodeFlow const> flows) {
  CutLoads loads(network);
  for (NodeFlow const& flow : flows) loads.add(flow);
  std::vector<double> slower;
  for (NodeFlow const& flow : flows) slower.push_back(loads.slowdown(flow));
  return slower;
}

std::string to_string(Interconnect const& network) {
  switch (network.kind) {
  case Interconnect::Kind::full: break;
  case Interconnect::Kind::fat_tree: {
    std::string text = fmt::format("fat tree of nodes of {:g} GB/s", network.node_bandwidth / 1e9);
    for (PodLevel const& level : network.levels)
      text += fmt::format(", pods of {} (taper {:g})", level.nodes, level.taper);
    return text;
  }
  case Interconnect::Kind::dragonfly:
    return fmt::format("dragonfly of {} groups of {} nodes with {} links of {:g} GB/s", network.groups,
                       network.group_nodes, network.global_links, network.link_bandwidth / 1e9);
  case Interconnect::Kind::torus: {
    std::string text = "torus";
    for (std::size_t i = 0; i < network.dimensions.size(); ++i)
      text += fmt::format("{}{}", i == 0 ? " " : " x ", network.dimensions[i]);
    return text + fmt::format(", links of {:g} GB/s", network.link_bandwidth / 1e9);
  }
  }
  return "full bandwidth between all nodes";
}

std::string interconnect_problem(Interconnect const& network, std::int64_t nodes) {
  std::vector<std::int64_t> extents = network.dimensions;
  if (network.kind == Interconnect::Kind::dragonfly) extents = {network.groups, network.group_nodes};
  if (extents.empty()) return "";
  if (2 * extents.size() > most_kinds)
    return fmt::format("its torus has {} dimensions, up to {} are known", extents.size(), most_kinds / 2);
  std::int64_t places = 1;
  for (std::int64_t const size : extents) {
    if (size >= (nodes + places - 1) / places) return ""; // enough already, and no product of all
    places *= size;
  }
  return fmt::format("its {} has {} nodes, there are {}", to_string(network), places, nodes);
}

} // namespace trainstone
