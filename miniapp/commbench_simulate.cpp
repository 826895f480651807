// trainstone commbench --simulate: prices schedules on a modelled machine of any size; runs and sends nothing.

#include "commbench.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/measurement/collective_contest.hpp"
#include "comm/simulation/chooser.hpp"
#include "report/machine_source.hpp"
#include "report/simulate_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

/// Those of the collective that were named and pass messages only; all such if none was named.
std::vector<Algorithm> wanted_algorithms(SimulateOptions const& options, Problem const& problem) {
  std::vector<Algorithm> wanted;
  for (Algorithm const algorithm : algorithms_of(problem.collective)) {
    bool const named = std::ranges::find(options.algorithms, to_string(algorithm)) != options.algorithms.end();
    std::string const reason = refusal(problem, algorithm);
    TRAINSTONE_REQUIRE_INPUT(!named || reason.empty(), "--simulate: {}", reason);
    if (reason.empty() && (named || options.algorithms.empty())) wanted.push_back(algorithm);
  }
  return wanted;
}

class Simulation {
public:
  Simulation(SimulateOptions const& options, MachineSource const& machine)
      : m_options(options), m_machine(machine), m_topology(Topology::block(options.ranks, options.nodes)) {}

  std::vector<SimulatedRow> rows() {
    for (Collective const collective : m_options.collectives) {
      bool const without_data = !has_data(collective);
      for (std::uint64_t const bytes : m_options.sizes) {
        add_size(collective, without_data ? 0 : bytes);
        if (without_data) break;
      }
    }
    return std::move(m_rows);
  }

private:
  void add_size(Collective collective, std::uint64_t bytes) {
    std::size_t const element = size_of(m_options.type);
    Problem const problem =
        problem_of_size(collective, static_cast<Index>(bytes / element), m_topology, m_options.root, m_options.servers);
    std::uint64_t const used = bytes / element * element;
    Link const slowest = m_topology.nodes() > 1 ? Link::inter : Link::intra;
    for (Algorithm const algorithm : wanted_algorithms(m_options, problem)) {
      PricedAlgorithm const priced = choose_algorithm(problem, element, m_machine.model, {&algorithm, 1});
      m_rows.push_back({.collective = std::string(to_string(collective)),
                        .bytes = used,
                        .algorithm = to_string(priced),
                        .seconds = priced.seconds,
                        .bus_factor = bus_factor(collective, m_options.ranks),
                        .extrapolated = m_machine.extrapolates(slowest, static_cast<double>(used))});
    }
  }

  SimulateOptions const& m_options;
  MachineSource const& m_machine;
  Topology m_topology;
  std::vector<SimulatedRow> m_rows;
};

} // namespace

int simulate_commbench(SimulateOptions const& options) {
  MachineSource const machine =
      read_machine_source(options.machine_file, Topology::block(options.ranks, options.nodes));
  std::vector<SimulatedRow> const rows = Simulation(options, machine).rows();
  fmt::print("{}", simulate_table({.ranks = options.ranks,
                                   .nodes = options.nodes,
                                   .type = std::string(to_string(options.type)),
                                   .machine = machine.description},
                                  rows));
  return 0;
}

} // namespace trainstone
