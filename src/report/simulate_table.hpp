#pragma once

// The output of `commbench --simulate`: predicted times of collectives on a modelled machine. Owns the form of the
// table. Pure: prices nothing.

#include <cstdint>
#include <span>
#include <string>

namespace trainstone {

/// One algorithm at one size.
struct SimulatedRow {
  std::string collective;
  std::uint64_t bytes = 0;
  std::string algorithm; ///< "ring", "segmented_ring/16384"
  double seconds = 0;
  double bus_factor = 1;
  /// Whether the size is outside of the sizes for which the machine's message times were measured.
  bool extrapolated = false;
};

struct SimulatedMachine {
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  std::string type;    ///< "float32"
  std::string machine; ///< where the times come from
};

/// The table, lines with their ends. It has one line per row, with rates in GB/s and a mark at the quickest of each
/// size. Then, per collective, it has the pick of `auto` for each range of sizes. Rows of one collective and size
/// follow each other.
std::string simulate_table(SimulatedMachine const& machine, std::span<SimulatedRow const> rows);

} // namespace trainstone
