#include "parallel/plan/planned_collective.hpp"

#include "comm/algorithms/registry.hpp"
#include "core/error.hpp"

#include <algorithm>

namespace trainstone {

Schedule schedule_of(PlannedCollective const& planned, Mesh const& mesh, Rank rank) {
  Rank const index = planned.stages ? mesh.index(*planned.stages, rank) : mesh.index(planned.axis, rank);
  return make_schedule(planned.problem, planned.algorithm, index);
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
  if (has_root(key.collective)) return main_device ? Algorithm::linear : Algorithm::binomial;
  return Algorithm::ring;
}

PlannedCollective planned_collective(AlgorithmChoice const& choice, Axis axis, Topology const& line,
                                     Collective collective, Index elements) {
  auto const key = std::ranges::find_if(algorithm_keys, [&](AlgorithmKey const& one) {
    return one.collective == collective && one.of_tensor_ranks == (axis == Axis::tensor);
  });
  TRAINSTONE_REQUIRE(key != algorithm_keys.end(), "no key names an algorithm of {}", to_string(collective));
  Algorithm const algorithm = choice.of(*key);
  Problem const problem{.collective = collective,
                        .partition = Partition::even(elements, line.ranks()),
                        .topology = line,
                        .shared_memory = find_algorithm(collective, algorithm).uses_shared_memory()};
  return {axis, problem, algorithm};
}

} // namespace trainstone
