#pragma once

// The part of the proof that plays nothing: what can be seen in each rank's schedule, and in those of a node together.
// For the simulator alone.

#include "comm/simulation/simulator.hpp"

namespace trainstone::Impl {

/// "undefined read: rank 1, round 2: ..."
Finding finding(Defect defect, Rank rank, std::size_t round, std::string const& what);

/// Schedules that are not of the problem, moves that are none.
std::optional<Finding> find_malformed(Problem const& problem, std::vector<Schedule> const& schedules);

/// Moves of one round that disturb each other.
std::optional<Finding> find_race_in_round(Schedule const& schedule);

/// Moves of neighbours that no node barrier keeps apart, or that touch what the caller still or again may change.
std::optional<Finding> find_race_between_neighbours(Problem const& problem, std::vector<Schedule> const& schedules);

} // namespace trainstone::Impl
