#pragma once

// What problem.hpp says about every collective, for the simulator: who holds what at the start and who has to end with
// what. Owns no state; pure functions of the problem.

#include "comm/problem.hpp"

#include <vector>

namespace trainstone::Impl {

/// The elements of `data` that hold something of this rank's own at the start.
Range initially_held(Problem const& problem, Rank rank);

/// A range of `data` at the end: its elements are `element`, element + 1, ... and the sum over ranks first ... last-1.
struct Expected {
  Range range;
  Index element;
  Rank first;
  Rank last;
};

/// What a rank has to end with, in ascending order, without empty ranges.
std::vector<Expected> expected_results(Problem const& problem, Rank rank);

} // namespace trainstone::Impl
