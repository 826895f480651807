// Whether a deck's collectives send messages, where it asks for an emulated network, which moves in shared memory do
// not heed, or where there is no shared memory. Part of deck_checks.hpp.

#include "comm/algorithms/registry.hpp"
#include "comm/schedule/message_buffers.hpp"
#include "deck/deck_checks.hpp"

#include <fmt/ranges.h>

#include <functional>

namespace trainstone {

namespace {

/// \param[in] why  "comm.emulated_network does not slow down; with it"
std::optional<ConfigProblem> find_problem_of(AlgorithmKey const& key, std::string const& name, std::string const& why) {
  auto const shares_memory = [&](Algorithm algorithm) {
    return find_algorithm(key.collective, algorithm).uses_shared_memory();
  };
  if (!names_algorithm(name) || !shares_memory(parse_algorithm(key.collective, name))) return std::nullopt;
  std::vector<std::string> names = algorithm_names(key.collective, std::not_fn(shares_memory));
  names.emplace_back(algorithm_measured);
  return problem(key.name, "{0} = \"{1}\" moves data in shared memory, which {2} {0} must be one of {3}", key.name,
                 name, why, fmt::join(names, ", "));
}

std::optional<ConfigProblem> find_problem_of_any(CommConfig const& comm, std::string const& why) {
  for (AlgorithmKey const& key : algorithm_keys)
    if (auto found = find_problem_of(key, comm.*key.member, why)) return found;
  return std::nullopt;
}

} // namespace

std::optional<ConfigProblem> find_network_problem(RunConfig const& config) {
  if (!config.comm.emulated_network().is_slow()) return std::nullopt;
  return find_problem_of_any(config.comm, "comm.emulated_network does not slow down; with it");
}

std::optional<ConfigProblem> find_buffers_problem(RunConfig const& config) {
  std::string const& name = config.comm.buffers;
  if (std::string const refusal = buffers_refusal(name); !refusal.empty())
    return ConfigProblem{"comm.buffers", refusal};
  return std::nullopt;
}

std::optional<ConfigProblem> find_neighbours_problem(RunConfig const& config, std::string const& finding) {
  return find_problem_of_any(config.comm, fmt::format("devices do not share here ({});", finding));
}

} // namespace trainstone
