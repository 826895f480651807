#include "report/recorded_run.hpp"

#include "comm/measurement/buffers_choice.hpp"
#include "core/error.hpp"
#include "parallel/plan/strategies.hpp"
#include "report/machine_source.hpp"
#include "result/recorded_deck.hpp"

#include <map>

namespace trainstone {

namespace {

/// Whether this build computes as the run did. Plans depend on it: a device computes while its host communicates.
void require_build_of(MachineInfo const& machine) {
  bool const on_host = buffers_refusal(to_string(MessageBuffers::host)).empty();
  TRAINSTONE_REQUIRE_INPUT(machine.device.empty() == on_host,
                           "the run computed on {}, and this build computes on {}; make the report with a build for {}",
                           on_host ? machine.device : "the host", on_host ? "the host" : "devices",
                           on_host ? "devices" : "the host");
}

/// Where the ranks of the run were.
Topology topology_of(TopologyInfo const& info, RunConfig const& config) {
  if (info.emulated_nodes || info.places.empty())
    return imagined_topology(config, info.ranks, info.emulated_nodes ? 1 : info.nodes);
  std::map<std::string, int> nodes;
  std::vector<int> node_of_rank;
  for (RankPlace const& place : info.places)
    node_of_rank.push_back(nodes.try_emplace(place.host, static_cast<int>(nodes.size())).first->second);
  return Topology(std::move(node_of_rank));
}

} // namespace

ResolvedRun recorded_run(ResultFile const& file) {
  Result const& result = file.result;
  RunConfig const config = resolve(recorded_deck(file), result.topology.ranks);
  TRAINSTONE_REQUIRE_INPUT(!is_asynchronous(config.parallel),
                           "workers that do not wait for each other make no step together");
  require_build_of(result.machine);
  MachineChoices choices{.buffers = parse_message_buffers(result.topology.buffers)};
  for (ChosenAlgorithm const& one : result.chosen) choices.algorithms[one.key] = one.algorithm;
  return resolve_run(config, topology_of(result.topology, config), choices);
}

} // namespace trainstone
