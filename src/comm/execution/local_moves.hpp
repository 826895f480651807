#pragma once

// The moves of a schedule that are kernels: reductions, combines and copies. Owns how a move is cut where the data lies
// in pieces, so that what the executor starts is what predictions count. Pure functions.

#include "comm/execution/pieces.hpp"
#include "comm/schedule/schedule.hpp"

#include <cstdint>

namespace trainstone {

/// The number of elements of a local move, from `from` on, that lie one after the other wherever the move reads and
/// writes data. One kernel handles them. \param[in] pieces  of the data
Index elements_of_kernel(Move const& move, Pieces const& pieces, Index from);

/// Kernels that an execution of this schedule starts.
std::uint64_t kernels_of(Schedule const& schedule, Pieces const& pieces = {});

} // namespace trainstone
