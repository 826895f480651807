// Whether an emulated network slows down what a deck's collectives do. Part of deck_checks.hpp.

#include "comm/registry.hpp"
#include "report/deck_checks.hpp"

#include <fmt/ranges.h>

namespace trainstone {

namespace {

std::optional<ConfigProblem> find_problem_of(char const* key, Collective collective, std::string const& name) {
  auto const shares_memory = [&](Algorithm algorithm) {
    return find_algorithm(collective, algorithm).uses_shared_memory();
  };
  if (name == "auto" || !shares_memory(parse_algorithm(collective, name))) return std::nullopt;
  std::vector<Algorithm> legal = unlimited_algorithms_of(collective);
  std::erase_if(legal, shares_memory);
  std::vector<std::string_view> names{"auto"};
  for (Algorithm const algorithm : legal) names.push_back(to_string(algorithm));
  return ConfigProblem{key, fmt::format("{0} = \"{1}\" moves data in shared memory, which comm.emulated_network does "
                                        "not slow down; with it {0} must be one of {2}",
                                        key, name, fmt::join(names, ", "))};
}

} // namespace

std::optional<ConfigProblem> find_network_problem(RunConfig const& config) {
  CommConfig const& comm = config.comm;
  if (!comm.emulated_network().is_slow()) return std::nullopt;
  if (auto found = find_problem_of("comm.allreduce", Collective::all_reduce, comm.allreduce)) return found;
  if (auto found = find_problem_of("comm.reduce_scatter", Collective::reduce_scatter, comm.reduce_scatter))
    return found;
  if (auto found = find_problem_of("comm.reduce", Collective::reduce, comm.reduce)) return found;
  if (auto found = find_problem_of("comm.broadcast", Collective::broadcast, comm.broadcast)) return found;
  return find_problem_of("comm.all_gather", Collective::all_gather, comm.all_gather);
}

} // namespace trainstone
