#include "comm/simulation/interconnect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <unordered_map>
#include <utility>

namespace trainstone {

namespace {

/// What a cut passes, and what flows want of it.
class Cuts {
public:
  void add(std::uint64_t cut, double rate) { m_loads[cut] += rate; }
  double load(std::uint64_t cut) const { return m_loads.at(cut); }

private:
  std::unordered_map<std::uint64_t, double> m_loads;
};

std::uint64_t name_of(std::int64_t place, std::uint64_t kind) { return static_cast<std::uint64_t>(place) * 64 + kind; }

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

template <class ForEachCut>
std::vector<double> shares(Interconnect const& network, std::span<NodeFlow const> flows,
                           ForEachCut const& for_each_cut) {
  Cuts cuts;
  for (NodeFlow const& flow : flows)
    if (is_between_nodes(flow))
      for_each_cut(network, flow, [&](std::uint64_t cut, double) { cuts.add(cut, flow.rate); });
  std::vector<double> slower(flows.size(), 1);
  for (std::size_t i = 0; i < flows.size(); ++i)
    if (is_between_nodes(flows[i]))
      for_each_cut(network, flows[i], [&](std::uint64_t cut, double capacity) {
        slower[i] = std::max(slower[i], cuts.load(cut) / capacity);
      });
  return slower;
}

// --- dragonfly

std::vector<double> dragonfly_shares(Interconnect const& network, std::span<NodeFlow const> flows) {
  constexpr std::uint64_t out = 0, in = 1;
  Cuts groups;
  std::map<std::pair<std::int64_t, std::int64_t>, double> pairs;
  auto const ends = [&](NodeFlow const& flow) {
    return std::pair(flow.from / network.group_nodes, flow.to / network.group_nodes);
  };
  for (NodeFlow const& flow : flows) {
    auto const [from, to] = ends(flow);
    if (!is_between_nodes(flow) || from == to) continue;
    groups.add(name_of(from, out), flow.rate);
    groups.add(name_of(to, in), flow.rate);
    pairs[{from, to}] += flow.rate;
  }
  double const all_links = static_cast<double>(network.global_links) * network.link_bandwidth,
               of_pair = all_links / static_cast<double>(std::max<std::int64_t>(1, network.groups - 1));
  std::vector<double> slower(flows.size(), 1);
  for (std::size_t i = 0; i < flows.size(); ++i) {
    auto const [from, to] = ends(flows[i]);
    if (!is_between_nodes(flows[i]) || from == to) continue;
    double const of_group = std::max(groups.load(name_of(from, out)), groups.load(name_of(to, in))) / all_links;
    double const direct = pairs.at({from, to}) / of_pair, around = 2 * of_group;
    slower[i] = std::max({1.0, of_group, std::min(direct, around)});
  }
  return slower;
}

} // namespace

std::vector<double> slowdowns(Interconnect const& network, std::span<NodeFlow const> flows) {
  switch (network.kind) {
  case Interconnect::Kind::full: break;
  case Interconnect::Kind::fat_tree:
    return shares(network, flows, [](auto const&... args) { for_each_pod_cut(args...); });
  case Interconnect::Kind::dragonfly: return dragonfly_shares(network, flows);
  case Interconnect::Kind::torus:
    return shares(network, flows, [](auto const&... args) { for_each_torus_link(args...); });
  }
  return std::vector<double>(flows.size(), 1);
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
  bool const is_torus = network.kind == Interconnect::Kind::torus;
  if (!is_torus && network.kind != Interconnect::Kind::dragonfly) return "";
  std::int64_t places = is_torus ? 1 : network.groups * network.group_nodes;
  for (std::int64_t const size : network.dimensions) places *= size;
  return nodes <= places ? "" : fmt::format("its {} has {} nodes, there are {}", to_string(network), places, nodes);
}

} // namespace trainstone
