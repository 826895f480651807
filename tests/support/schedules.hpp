#pragma once

// Schedules written by hand, for tests of what takes schedules.

#include "comm/schedule/problem.hpp"

#include <vector>

namespace trainstone::test {

inline Slice data(Index begin, Index end, Rank owner = own_memory) { return {BufferId::data, {begin, end}, owner}; }
inline Slice scratch(Index begin, Index end, Rank owner = own_memory) {
  return {BufferId::scratch, {begin, end}, owner};
}

/// One schedule per element of `rounds`; they name their neighbours if the problem has shared memory.
inline std::vector<Schedule> schedules_of(Problem const& problem, std::vector<std::vector<Round>> const& rounds,
                                          Index scratch_elements = 0) {
  std::vector<Schedule> schedules;
  for (std::vector<Round> const& of_rank : rounds) {
    auto const rank = static_cast<Rank>(schedules.size());
    schedules.push_back(
        {.collective = problem.collective,
         .algorithm = Algorithm::naive,
         .rank = rank,
         .ranks = problem.ranks(),
         .elements = problem.elements(),
         .scratch_elements = scratch_elements,
         .rounds = of_rank,
         .neighbours = problem.shared_memory ? problem.topology.neighbours(rank) : std::vector<Rank>{}});
  }
  return schedules;
}

} // namespace trainstone::test
