#include "parallel/plan/planned_collective.hpp"

#include "comm/algorithms/registry.hpp"
#include "core/error.hpp"

#include <fmt/ranges.h>

namespace trainstone {

Rank place_of(Rank rank, PlannedCollective const& planned, Mesh const& mesh) {
  return planned.stages ? mesh.index(*planned.stages, rank) : mesh.index(planned.axis, rank);
}

Schedule schedule_of(PlannedCollective const& planned, Mesh const& mesh, Rank rank) {
  return make_schedule(planned.problem, planned.algorithm, place_of(rank, planned, mesh));
}

bool are_alike(PlannedCollective const& gather, PlannedCollective const& other) {
  return gather.problem.elements() == other.problem.elements() && gather.problem.root == other.problem.root;
}

std::optional<Axis> sharers_of(PlannedCollective const& planned) {
  return planned.problem.shared_memory ? std::optional(planned.axis) : std::nullopt;
}

Algorithm AlgorithmChoice::of(AlgorithmKey const& key) const {
  std::string const& name = comm.*key.member;
  if (names_algorithm(name)) return parse_algorithm(key.collective, name);
  if (ordered && adds_up(key.collective)) return Algorithm::ordered;
  if (direct && key.collective != Collective::all_reduce && !key.of_tensor_ranks) return Algorithm::direct;
  if (has_root(key.collective)) return main_device ? Algorithm::linear : Algorithm::binomial;
  return Algorithm::ring;
}

PlannedCollective planned_collective(AlgorithmChoice const& choice, Axis axis, Topology const& line,
                                     Collective collective, Index elements) {
  if (has_servers(collective)) {
    bool const in_tree = choice.ordered && collective == Collective::server_push;
    return {axis, even_problem(collective, elements, line, 0, choice.servers),
            in_tree ? Algorithm::ordered : Algorithm::direct};
  }
  AlgorithmKey const* const key = find_algorithm_key(collective, is_layer_axis(axis));
  TRAINSTONE_REQUIRE(key, "no key names an algorithm of {}", to_string(collective));
  Algorithm const algorithm = choice.of(*key);
  auto const problem_for = [&](Algorithm one) {
    return Problem{.collective = collective,
                   .partition = Partition::even(elements, line.ranks()),
                   .topology = line,
                   .shared_memory = find_algorithm(collective, one).uses_shared_memory()};
  };
  auto const is_legal = [&](Algorithm one) { return refusal(problem_for(one), one).empty(); };
  Problem const problem = problem_for(algorithm);
  TRAINSTONE_REQUIRE_INPUT(is_legal(algorithm), "{}: {}; legal values: {}", key->name, refusal(problem, algorithm),
                           fmt::join(algorithm_names(collective, is_legal), ", "));
  return {axis, problem, algorithm};
}

} // namespace trainstone
