#pragma once

// The meaning of every collective (problem.hpp) for the simulator: the data of each rank at the start, and the expected
// data at the end. Owns no state; pure functions of the problem.

#include "comm/schedule/problem.hpp"

#include <vector>

namespace trainstone::Impl {

/// The elements of `data` that this rank contributes at the start.
Range initially_held(Problem const& problem, Rank rank);

/// A range of `data` at the end: its elements are `element`, element + 1, ... and the sum over ranks first ... last-1.
struct Expected {
  Range range;
  Index element;
  Rank first;
  Rank last;
};

/// The data with which a rank has to end, in ascending order, without empty ranges.
std::vector<Expected> expected_results(Problem const& problem, Rank rank);

/// From the first to the last element with which a rank has to end.
Range finally_held(Problem const& problem, Rank rank);

} // namespace trainstone::Impl
