#include "report/machine_source.hpp"

#include "comm/simulation/chooser.hpp"
#include "core/error.hpp"
#include "core/plural.hpp"
#include "train/plan/step_prediction.hpp"

#include <algorithm>

namespace trainstone {

namespace {

std::string assumed_description(Topology const& topology) {
  std::string const assumed = "assumed, typical figures (no --machine)";
  if (topology.nodes() == 1) return assumed;
  return fmt::format("{}; a rank has 1/{} of its node's port of {} GB/s", assumed, assumed_ranks_per_node,
                     assumed_node_bandwidth / 1e9);
}

} // namespace

MachineSource read_machine_source(std::string const& path, Topology const& topology,
                                  std::optional<BuffersChoice> const& buffers) {
  if (path.empty()) return {default_machine(), assumed_description(topology), {}};
  return machine_source(path, read_machine_file(path), topology, buffers);
}

MachineSource machine_source(std::string const& path, MeasuredMachine measured, Topology const& topology,
                             std::optional<BuffersChoice> const& buffers) {
  MessageBuffers const known = measured.provenance.buffers;
  TRAINSTONE_REQUIRE_INPUT(
      !buffers || buffers->messages == known,
      "--machine {}: its messages were measured with buffers {}, here they have buffers {}, which "
      "take other times; `trainstone calibrate --buffers {}` measures them, or leave out --machine",
      path, to_string(known), to_string(buffers->messages), buffers->name);
  std::string const missing = measured.fit.missing_for(topology, buffers && buffers->shared_memory);
  TRAINSTONE_REQUIRE_INPUT(
      missing.empty(),
      "--machine {}: no times of {}, which {} on {} need; calibrate on such ranks, e.g. "
      "mpiexec -n 2 trainstone calibrate (--emulated-nodes measures with several nodes on one), or leave out --machine",
      path, missing, plural(topology.ranks(), "rank"), plural(topology.nodes(), "node"));
  std::string const problem = interconnect_problem(measured.network, topology.nodes());
  TRAINSTONE_REQUIRE_INPUT(problem.empty(), "--machine {}: {}", path, problem);
  MachineModel model = measured.fit.model();
  model.network = measured.network;
  std::string description = machine_line(path, measured);
  if (model.network.kind != Interconnect::Kind::full) description += "; " + to_string(model.network);
  return {model, description, std::move(measured)};
}

Topology imagined_topology(RunConfig const& config, std::int64_t ranks, std::int64_t nodes) {
  std::int64_t const emulated = config.comm.emulated_nodes;
  TRAINSTONE_REQUIRE_INPUT(emulated <= 0 || nodes == 1,
                           "--nodes {}: the deck has comm.emulated_nodes = {}; leave out one of them", nodes, emulated);
  TRAINSTONE_REQUIRE_INPUT(nodes <= ranks, "--nodes {}: there are {} ranks, must be 1 to {}", nodes, ranks, ranks);
  return Topology::block(static_cast<Rank>(ranks), static_cast<int>(std::max(emulated, nodes)));
}

std::string missing_parts(MachineSource const& machine, RunConfig const& config) {
  auto const& parts = machine.measured->parts;
  return parts ? parts_differ(*parts, part_conditions(config)) : "has no times of parts";
}

} // namespace trainstone
