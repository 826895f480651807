#pragma once

// Time that has passed, on the clock that never goes back.

#include <chrono>

namespace trainstone {

using SteadyTime = std::chrono::steady_clock::time_point;

/// In s.
inline double seconds_between(SteadyTime begin, SteadyTime end) {
  return std::chrono::duration<double>(end - begin).count();
}
inline double seconds_since(SteadyTime begin) { return seconds_between(begin, std::chrono::steady_clock::now()); }

} // namespace trainstone
