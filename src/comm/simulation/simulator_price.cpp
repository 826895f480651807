// The simulator's price: of given schedules, and of an algorithm where one node's ranks stand for all.

#include "comm/algorithms/registry.hpp"
#include "comm/simulation/node_price.hpp"
#include "comm/simulation/port_simulation.hpp"
#include "comm/simulation/simulator.hpp"
#include "core/error.hpp"

namespace trainstone {

namespace {

/// A problem of at most so many ranks is priced in full if its elements cannot be shared out evenly. Blocks of the mean
/// size are wrong where blocks are empty and not sent: of fewer elements than ranks, rings cost up to the ratio of slow
/// to mean links too much. So is a problem on nodes with ports of their own: who of many gets a port next differs
/// between nodes. Twice the ranks take four times as long: at 256 some tenths of a second.
constexpr Rank always_in_full = 256;

/// How many ranks stand for all if all nodes are alike: those of a node, or one if there is one node; 0 if they are
/// not.
Rank representatives(Topology const& topology) {
  if (topology.nodes() == 1) return 1;
  if (topology.ranks() % topology.nodes() != 0) return 0;
  Rank const per_node = topology.ranks() / topology.nodes();
  for (Rank rank = 0; rank < topology.ranks(); ++rank)
    if (topology.node_of(rank) != rank / per_node) return 0;
  return per_node;
}

bool symmetry_may_hold(Problem const& problem, Algorithm algorithm, MachineModel const& machine) {
  Rank const ranks = problem.ranks();
  PricingSymmetry const symmetry = find_algorithm(problem.collective, algorithm).symmetry;
  if (symmetry == PricingSymmetry::none) return false;
  if (symmetry == PricingSymmetry::nodes_if_power_of_two && (ranks & (ranks - 1)) != 0) return false;
  if (machine.node_ports > 0 && problem.topology.nodes() > 1 && ranks <= always_in_full) return false;
  if (problem.elements() % ranks != 0 && ranks <= always_in_full) return false;
  return problem.partition == Partition::even(problem.elements(), ranks);
}

PiecewiseLinear stretched(PiecewiseLinear const& curve, double factor) {
  std::vector<PiecewiseLinear::Piece> pieces = curve.pieces();
  for (PiecewiseLinear::Piece& piece : pieces) {
    piece.from_bytes *= factor;
    piece.per_byte /= factor;
  }
  return PiecewiseLinear(std::move(pieces));
}

/// A machine on which `factor` times as many bytes take what they take on the given one.
MachineModel stretched(MachineModel machine, double factor) {
  for (auto* const curves : {&machine.message, &machine.one_way})
    for (PiecewiseLinear& message : *curves) message = stretched(message, factor);
  for (PiecewiseLinear* const curve : {&machine.reduce, &machine.copy, &machine.combine_to_own, &machine.combine_to_all,
                                       &machine.fetch, &machine.push})
    *curve = stretched(*curve, factor);
  machine.network.node_bandwidth *= factor;
  machine.network.link_bandwidth *= factor;
  return machine;
}

} // namespace

std::optional<double> Impl::price_of_one_node(Problem const& problem, Algorithm algorithm, std::size_t element_bytes,
                                              MachineModel const& machine, std::vector<int> const& placement) {
  Rank const played = representatives(problem.topology);
  if (played == 0 || !symmetry_may_hold(problem, algorithm, machine)) return {};
  Rank const ranks = problem.ranks();
  Problem rounded = problem;
  rounded.partition = Partition::even((problem.elements() + ranks - 1) / ranks * ranks, ranks);
  // More elements, each as much smaller: whole buffers keep their bytes, blocks have the mean of the given ones.
  double const factor =
      problem.elements() == 0 ? 1 : static_cast<double>(rounded.elements()) / static_cast<double>(problem.elements());
  MachineModel const machine_of_rounded = factor == 1 ? machine : stretched(machine, factor);
  Impl::PortSimulation simulation(machine_of_rounded, problem.topology, element_bytes, placement);
  for (Rank rank = 0; rank < played; ++rank) simulation.add(make_schedule(rounded, algorithm, rank));
  for (Impl::Motion const motion : {Impl::Motion::shift, Impl::Motion::exchange}) {
    if (auto const seconds = simulation.run(motion)) return seconds; // with the wrong motion messages never meet
  }
  return {};
}

double price(Problem const& problem, std::vector<Schedule> const& schedules, std::size_t element_bytes,
             MachineModel const& machine) {
  TRAINSTONE_REQUIRE(std::ssize(schedules) == problem.ranks(), "{} schedules for {} ranks", schedules.size(),
                     problem.ranks());
  Impl::PortSimulation simulation(machine, problem.topology, element_bytes);
  for (Schedule const& schedule : schedules) simulation.add(schedule);
  auto const seconds = simulation.run();
  TRAINSTONE_REQUIRE(seconds, "{} {} waits for ever", to_string(problem.collective), to_string(schedules[0].algorithm));
  return *seconds;
}

double price(Problem const& problem, Algorithm algorithm, std::size_t element_bytes, MachineModel const& machine,
             std::vector<int> const& placement) {
  if (auto const seconds = Impl::price_of_one_node(problem, algorithm, element_bytes, machine, placement))
    return *seconds;
  Impl::PortSimulation simulation(machine, problem.topology, element_bytes, placement);
  for (Rank rank = 0; rank < problem.ranks(); ++rank) simulation.add(make_schedule(problem, algorithm, rank));
  auto const seconds = simulation.run();
  TRAINSTONE_REQUIRE(seconds, "{} {} waits for ever", to_string(problem.collective), to_string(algorithm));
  return *seconds;
}

} // namespace trainstone
