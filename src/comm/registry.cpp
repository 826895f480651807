#include "comm/registry.hpp"

#include "comm/ring_all_reduce.hpp"
#include "core/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace trainstone {

namespace {

bool any_number_of_ranks(Rank ranks) { return ranks >= 1; }

constexpr std::array table{
    RegisteredAlgorithm{Collective::all_reduce, Algorithm::ring, "ring", any_number_of_ranks, make_ring_all_reduce},
};

} // namespace

std::span<RegisteredAlgorithm const> registered_algorithms() { return table; }

RegisteredAlgorithm const& find_algorithm(Collective collective, Algorithm algorithm) {
  auto const found = std::ranges::find_if(
      table, [&](auto const& line) { return line.collective == collective && line.algorithm == algorithm; });
  TRAINSTONE_REQUIRE(found != table.end(), "{} has no algorithm {}", to_string(collective), to_string(algorithm));
  return *found;
}

Algorithm parse_algorithm(Collective collective, std::string_view name) {
  std::vector<std::string_view> legal;
  for (RegisteredAlgorithm const& line : table) {
    if (line.collective != collective) continue;
    if (line.name == name) return line.algorithm;
    legal.push_back(line.name);
  }
  throw InputError(
      fmt::format("{} has no algorithm \"{}\"; there is: {}", to_string(collective), name, fmt::join(legal, ", ")));
}

Schedule make_schedule(Collective collective, Algorithm algorithm, Partition const& partition, Rank rank) {
  RegisteredAlgorithm const& line = find_algorithm(collective, algorithm);
  Rank const ranks = partition.ranks();
  TRAINSTONE_REQUIRE(line.supports(ranks), "{} {} does not work on {} ranks", to_string(collective), line.name, ranks);
  TRAINSTONE_REQUIRE(rank >= 0 && rank < ranks, "no rank {} among {}", rank, ranks);
  return line.make(partition, rank);
}

std::vector<Schedule> make_schedules(Collective collective, Algorithm algorithm, Partition const& partition) {
  std::vector<Schedule> schedules;
  for (Rank rank = 0; rank < partition.ranks(); ++rank) {
    schedules.push_back(make_schedule(collective, algorithm, partition, rank));
  }
  return schedules;
}

} // namespace trainstone
