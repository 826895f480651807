#pragma once

// Schedules in words, for findings and explanations. Owns the wording of slices and moves; plain functions.

#include "comm/schedule/schedule.hpp"

#include <string>

namespace trainstone {

/// "data [0, 3)", "scratch [0, 3) of rank 1", "data [0, 3) of all neighbours"
std::string describe(Slice const& slice);

/// "send of data [0, 3) to rank 1", "reduce of scratch [0, 3) into data [0, 3)"
std::string describe(Move const& move);

} // namespace trainstone
