#pragma once

#include "core/index.hpp"

namespace trainstone {

/// Elements side by side that an update changes.
struct UpdatePiece {
  Index begin, end;
  bool decays; ///< whether weight decay shrinks them
};

/// That an update goes over at once.
inline constexpr Index most_update_pieces = 128;

} // namespace trainstone
