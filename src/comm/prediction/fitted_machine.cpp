#include "comm/prediction/fitted_machine.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>

namespace trainstone {

MachineModel FittedMachine::model() const {
  auto const curve = [](std::optional<FittedCurve> const& fitted) {
    return fitted ? fitted->curve : PiecewiseLinear();
  };
  MachineModel machine;
  for (std::size_t link = 0; link < link_count; ++link) {
    machine.message[link] = curve(message[link]);
    machine.one_way[link] = curve(one_way[link]);
    machine.overlap[link] = overlap[link].value_or(1);
  }
  machine.reduce = curve(reduce);
  machine.copy = curve(copy);
  machine.combine_to_own = curve(combine_to_own);
  machine.combine_to_all = curve(combine_to_all);
  machine.fetch = curve(fetch);
  machine.push = curve(push ? push : fetch);
  machine.node_barrier = node_barrier.value_or(0);
  machine.ports = ports;
  machine.node_ports = node_ports;
  return machine;
}

std::string FittedMachine::missing_for(Topology const& topology, bool shared_memory) const {
  std::vector<std::string_view> missing;
  bool const neighbours = topology.nodes() < topology.ranks();
  bool const several = topology.ranks() > 1;
  auto const need = [&](bool needed, bool measured, std::string_view what) {
    if (needed && !measured) missing.push_back(what);
  };
  auto const knows = [this](Link link) {
    auto const i = static_cast<std::size_t>(link);
    return message[i] && one_way[i] && overlap[i];
  };
  need(neighbours, knows(Link::intra), "messages inside a node");
  need(topology.nodes() > 1, knows(Link::inter), "messages between nodes");
  need(several, reduce.has_value(), "reductions");
  need(several, copy.has_value(), "copies");
  need(neighbours && shared_memory, combine_to_own && combine_to_all, "sums in shared memory");
  need(neighbours && shared_memory, fetch.has_value(), "copies in shared memory");
  need(neighbours && shared_memory, node_barrier.has_value(), "barriers of a node");
  return fmt::format("{}", fmt::join(missing, ", "));
}

bool FittedMachine::extrapolates_message(Link link, double bytes) const {
  std::optional<FittedCurve> const& curve = message[static_cast<std::size_t>(link)];
  return !curve || curve->extrapolates(bytes);
}

std::vector<NamedCurve> named_curves(FittedMachine& machine) {
  return {{"message_intra", &machine.message[static_cast<std::size_t>(Link::intra)]},
          {"message_inter", &machine.message[static_cast<std::size_t>(Link::inter)]},
          {"one_way_intra", &machine.one_way[static_cast<std::size_t>(Link::intra)]},
          {"one_way_inter", &machine.one_way[static_cast<std::size_t>(Link::inter)]},
          {"reduce", &machine.reduce},
          {"copy", &machine.copy},
          {"combine_to_own", &machine.combine_to_own},
          {"combine_to_all", &machine.combine_to_all},
          {"fetch", &machine.fetch},
          {"push", &machine.push}};
}

} // namespace trainstone
