#pragma once

// Several results as a function of the number of ranks. Owns which of them may be compared: a rate or time of an
// INVALID or STOPPED run is in none. Pure functions.

#include "report/report_input.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// A value at a number of ranks: median over repeats, with their range, or with the 95 % interval of the only one.
struct ScalingValue {
  std::int64_t ranks = 1;
  double value = 0, low = 0, high = 0;
  std::size_t repeats = 1;
};

/// Results that lie on one line.
struct ScalingLine {
  std::string name;                  ///< the deck's file, and the values that tell its line from others
  std::string rate_name;             ///< "FOM", "FOM_UNREFERENCED", "FOM and FOM_UNREFERENCED" or "FOM_EMULATED"
  std::vector<ScalingValue> rates;   ///< tokens/s, or with flops FLOP/s; by ranks
  std::vector<ScalingValue> seconds; ///< of a step: medians; of a single run with 5 and 95 %
  std::map<std::int64_t, std::vector<NamedResult const*>> by_ranks;
};

/// What makes results of one deck file lie on different lines.
enum class Told {
  by_values, ///< other values of the deck than those that follow the number of ranks; other nodes for the same ranks
  by_study,  ///< nothing: a study says that they belong together
};

/// One line per deck file and configuration, and one of its own for results of emulated machines. Results without a
/// rate are left out.
/// \param[in] flops  rates in FLOP/s instead, for studies whose model grows with the ranks
std::vector<ScalingLine> scaling_lines(std::vector<NamedResult const*> const& results, Told told, bool flops);

/// Rate per rank as a share of that at the fewest ranks.
std::vector<ScalingValue> efficiencies(std::vector<ScalingValue> const& rates);

/// What runs on several numbers of ranks keep the same: "strong scaling: 1024 tokens per step", "weak scaling: ...", or
/// that neither is so.
std::string invariant_of(ScalingLine const& line);

} // namespace trainstone
