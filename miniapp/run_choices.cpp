#include "run_choices.hpp"

#include "comm/execution/buffers_start.hpp"
#include "core/cores.hpp"
#include "fastest_collectives.hpp"
#include "gemm_table.hpp"

#include <algorithm>

namespace trainstone {

namespace {

/// The world on the nodes and the network that the deck emulates. Collective. The deck fits the number of ranks.
Communicator emulated_world(CommConfig const& config) {
  Communicator world = Communicator::world(static_cast<int>(config.emulated_nodes));
  world.emulate_network(config.emulated_network());
  return world;
}

} // namespace

Placement placement_of(Communicator const& world) {
  return {world.nodes(), devices_of_ranks(world),
          all_gather_texts(world, number_ranges(cores_of_threads(Kokkos::DefaultHostExecutionSpace())))};
}

std::int64_t ranks_beside(NodeMap const& machines, Rank rank) {
  return std::ranges::count(machines.node_of_rank, machines.node_of_rank[static_cast<std::size_t>(rank)]);
}

ChosenRun choose_run(RunConfig const& config, Placement const& placement, RankContext& context) {
  Communicator& communicator = context.communicator;
  communicator = emulated_world(config.comm);
  DeviceFindings const found = use_chosen_buffers(communicator, config.comm.buffers, context.exec);
  require_neighbours_memory(config, found.neighbours);
  MachineChoices machine{.buffers = communicator.buffers()};
  ResolvedRun const asked = resolve_run(config, communicator.topology(), machine);
  std::int64_t const neighbours = ranks_beside(placement.machines, communicator.rank());
  MeasuredGemms const gemms = find_fastest_gemms(context, neighbours, asked);
  machine.gemm = gemms.choice;
  std::vector<ChosenAlgorithm> const fastest = find_fastest_collectives(context, neighbours, asked);
  for (ChosenAlgorithm const& one : fastest) machine.algorithms[one.key] = one.algorithm;

  ChosenRun chosen{resolve_run(config, communicator.topology(), machine), fastest, {}};
  if (!placement.devices.front().empty()) // kernels work on a device
    chosen.notes.assign({found.messages.finding, found.neighbours.finding});
  if (!gemms.note.empty()) chosen.notes.push_back(gemms.note);
  for (ChosenAlgorithm const& one : fastest) chosen.notes.push_back(chosen_line(one));
  return chosen;
}

} // namespace trainstone
