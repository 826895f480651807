#pragma once

// The table of collective algorithms. Owns the list of generators: whoever adds one adds a line here, and tests,
// cost model, counters and the executor pick it up. Generators are pure functions.

#include "comm/schedule.hpp"

#include <span>
#include <string_view>
#include <vector>

namespace trainstone {

/// A generator and what it is for.
struct RegisteredAlgorithm {
  Collective collective;
  Algorithm algorithm;
  std::string_view name; ///< as decks and tables write it
  bool (*supports)(Rank ranks);
  Schedule (*make)(Partition const& partition, Rank rank);
};

std::span<RegisteredAlgorithm const> registered_algorithms();

/// The algorithm that a deck names. \throws InputError listing the legal names
Algorithm parse_algorithm(Collective collective, std::string_view name);

/// The table's line. \throws Error if there is none
RegisteredAlgorithm const& find_algorithm(Collective collective, Algorithm algorithm);

/// The schedule of `rank` among partition.ranks() ranks; partition.elements() elements of data.
/// \throws Error if the pair is not registered or does not support the number of ranks
Schedule make_schedule(Collective collective, Algorithm algorithm, Partition const& partition, Rank rank);

/// The schedules of all ranks, in order: what the simulator takes.
std::vector<Schedule> make_schedules(Collective collective, Algorithm algorithm, Partition const& partition);

} // namespace trainstone
