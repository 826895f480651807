#include "comm/simulation/chooser.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/simulation/simulator.hpp"
#include "core/error.hpp"

#include <algorithm>

namespace trainstone {

namespace {

/// At least one; a segment that holds the whole data is the last that differs from the smaller ones.
std::vector<Index> segments_to_try(Problem const& problem, Algorithm algorithm) {
  if (!is_segmented(algorithm)) return {0};
  if (problem.segment > 0) return {problem.segment};
  std::vector<Index> segments;
  for (Index const segment : tried_segments)
    if (segments.empty() || segments.back() < problem.elements()) segments.push_back(segment);
  return segments;
}

PricedAlgorithm price_best_segment(Problem problem, Algorithm algorithm, std::size_t element_bytes,
                                   MachineModel const& machine) {
  PricedAlgorithm best{algorithm, 0, 0};
  bool first = true;
  for (Index const segment : segments_to_try(problem, algorithm)) {
    problem.segment = segment;
    double const seconds = price(problem, algorithm, element_bytes, machine);
    if (!first && seconds >= best.seconds) continue;
    best.segment = segment;
    best.seconds = seconds;
    first = false;
  }
  return best;
}

} // namespace

std::string to_string(PricedAlgorithm const& candidate) {
  std::string const name(to_string(candidate.algorithm));
  return candidate.segment == 0 ? name : fmt::format("{}/{}", name, candidate.segment);
}

std::vector<PricedAlgorithm> rank_algorithms(Problem const& problem, std::size_t element_bytes,
                                             MachineModel const& machine, std::span<Algorithm const> among) {
  std::vector<PricedAlgorithm> ranked;
  std::string reasons;
  for (Algorithm const algorithm : algorithms_of(problem.collective)) {
    if (!among.empty() && std::ranges::find(among, algorithm) == among.end()) continue;
    std::string const reason = refusal(problem, algorithm);
    if (reason.empty())
      ranked.push_back(price_best_segment(problem, algorithm, element_bytes, machine));
    else
      reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  TRAINSTONE_REQUIRE_INPUT(!ranked.empty(), "no algorithm for {}: {}", to_string(problem.collective),
                           reasons.empty() ? "none of those asked for is one of its" : reasons);
  std::ranges::stable_sort(ranked, {}, &PricedAlgorithm::seconds);
  return ranked;
}

PricedAlgorithm choose_algorithm(Problem const& problem, std::size_t element_bytes, MachineModel const& machine,
                                 std::span<Algorithm const> among) {
  return rank_algorithms(problem, element_bytes, machine, among).front();
}

MachineModel default_machine() {
  MachineModel machine;
  machine.set_messages(Link::intra, PiecewiseLinear(1e-6, 1 / 10e9));
  machine.set_messages(Link::inter, PiecewiseLinear(2e-6, assumed_ranks_per_node / assumed_node_bandwidth));
  machine.reduce = PiecewiseLinear(1e-7, 1 / 8e9);
  machine.copy = PiecewiseLinear(1e-7, 1 / 10e9);
  machine.combine_to_own = PiecewiseLinear(1e-7, 1 / 20e9);
  machine.combine_to_all = PiecewiseLinear(1e-7, 1 / 20e9);
  machine.fetch = PiecewiseLinear(1e-7, 1 / 20e9);
  machine.push = PiecewiseLinear(1e-7, 1 / 20e9);
  machine.node_barrier = 5e-7;
  return machine;
}

} // namespace trainstone
