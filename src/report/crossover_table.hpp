#pragma once

// Shows which algorithm is picked at which size, and what the pick costs. Owns the comparison of picks by prediction
// with picks by measurement, and its table. Pure: knows neither schedules nor machines.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trainstone {

/// One algorithm at one size.
struct Competitor {
  std::string name;
  double predicted_seconds = 0;
  std::optional<double> measured_seconds; ///< median
};

/// All algorithms at one size.
struct SizeComparison {
  std::uint64_t bytes = 0;
  std::vector<Competitor> competitors;
};

struct CrossoverRow {
  std::uint64_t bytes = 0;
  std::string picked; ///< the least predicted time; the first of equals
  double predicted_seconds = 0;
  std::optional<double> measured_seconds; ///< of the picked one
  std::string fastest;                    ///< the least measured time; empty if nothing was measured
  double fastest_seconds = 0;
  std::optional<double> loss; ///< measured picked / measured fastest - 1, if both were measured
};

/// One row per size that has at least two to choose from. \throws Error if a size has no competitor, or a time is not
/// finite, or below 0
std::vector<CrossoverRow> crossover_rows(std::span<SizeComparison const> sizes);

/// Lines, each with its end: sizes with the same pick one after the other are one line where nothing was measured, else
/// one line per size and at the end the mean and the largest loss. Sizes in bytes, times in us, losses in percent.
std::string crossover_table(std::span<CrossoverRow const> rows);

} // namespace trainstone
