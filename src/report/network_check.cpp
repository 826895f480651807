// Whether an emulated network slows down what a deck's collectives do. Part of deck_checks.hpp.

#include "comm/registry.hpp"
#include "report/deck_checks.hpp"

#include <fmt/ranges.h>

namespace trainstone {

std::optional<ConfigProblem> find_network_problem(RunConfig const& config) {
  if (!config.comm.emulated_network().is_slow()) return std::nullopt;
  auto const shares_memory = [](Algorithm algorithm) {
    return find_algorithm(Collective::all_reduce, algorithm).uses_shared_memory();
  };
  if (!shares_memory(parse_algorithm(Collective::all_reduce, config.comm.allreduce))) return std::nullopt;
  std::vector<Algorithm> legal = unlimited_algorithms_of(Collective::all_reduce);
  std::erase_if(legal, shares_memory);
  std::vector<std::string_view> names;
  for (Algorithm const algorithm : legal) names.push_back(to_string(algorithm));
  return ConfigProblem{"comm.allreduce",
                       fmt::format("comm.allreduce = \"{}\" moves data in shared memory, which comm.emulated_network "
                                   "does not slow down; with it comm.allreduce must be one of {}",
                                   config.comm.allreduce, fmt::join(names, ", "))};
}

} // namespace trainstone
