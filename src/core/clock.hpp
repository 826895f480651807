#pragma once

// Time that has passed, on the clock that never goes back.

#include <chrono>

namespace trainstone {

using SteadyTime = std::chrono::steady_clock::time_point;

/// In s.
inline double seconds_since(SteadyTime begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

} // namespace trainstone
