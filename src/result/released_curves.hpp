#pragma once

// The golden files that were released with this program, by digest. Anybody can record a golden curve from any program
// and compare runs with it. A run that agrees with a released curve agrees with the same curve as everybody's runs.

#include <array>
#include <string_view>

namespace trainstone {

struct ReleasedCurves {
  std::string_view deck;   ///< inputs/golden/DECK.json
  std::string_view digest; ///< xxhsum -H3 of the file
};

inline constexpr std::array<ReleasedCurves, 5> released_curves{{{"large", "6527c9eb4bf46821"},
                                                                {"quickstart", "70e88b9bcb1ed79a"},
                                                                {"reference", "83ea8eb270773cf5"},
                                                                {"small", "1e58049122e21926"},
                                                                {"tiny", "116c0176ed30b652"}}};

constexpr bool is_released(std::string_view digest) {
  for (ReleasedCurves const& released : released_curves)
    if (released.digest == digest) return true;
  return false;
}

} // namespace trainstone
