#include "parallel/plan/planned_collective.hpp"

#include "comm/algorithms/registry.hpp"
#include "core/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

namespace {

/// "auto", and the algorithms that solve a problem of this kind.
std::vector<std::string_view> algorithms_without_refusal(Problem problem) {
  std::vector<std::string_view> names{"auto"};
  for (Algorithm const algorithm : unlimited_algorithms_of(problem.collective)) {
    problem.shared_memory = find_algorithm(problem.collective, algorithm).uses_shared_memory();
    if (refusal(problem, algorithm).empty()) names.push_back(to_string(algorithm));
  }
  return names;
}

} // namespace

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
  if (std::string const reason = refusal(problem, algorithm); !reason.empty())
    throw InputError(fmt::format("{}: {}; legal values: {}", key->name, reason,
                                 fmt::join(algorithms_without_refusal(problem), ", ")));
  return {axis, problem, algorithm};
}

} // namespace trainstone
