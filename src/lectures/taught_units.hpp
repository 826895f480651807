#pragma once

// The unit of fully sharded training: how many blocks are gathered and reduced together. More of them make fewer and
// larger messages, and take more memory. Memory and counts come from the plan of a step and its program, the number of
// gathers also from a closed form. Pure; renders no text (lectures/lecture_zero.hpp).

#include "comm/schedule/topology.hpp"
#include "comm/simulation/machine_model.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace trainstone {

/// Of one micro-batch in stage 3: parameters and gradients have 16 bits, one unit is gathered ahead, two buckets of the
/// size of a unit are reduced at a time.
struct UnitRow {
  std::int64_t blocks = 0;
  std::uint64_t exact_gathers = 0; ///< closed form
  std::uint64_t gathers = 0;       ///< of the step's program
  std::uint64_t messages = 0;      ///< that a rank sends for them
  std::uint64_t bytes = 0;         ///< likewise
  std::uint64_t largest_message = 0;
  std::uint64_t slot_bytes = 0;  ///< memory for gathered units
  std::uint64_t fresh_bytes = 0; ///< memory for gradients of the micro-batch
  double start = 0;              ///< seconds of a machine whose messages take no time but their start
  double seconds = 0;            ///< of all gathers, one after the other
};

struct TaughtUnits {
  std::string model;
  std::int64_t layers = 0;
  std::vector<UnitRow> rows; ///< of 1, 2, 4, 8 and all blocks
};

/// \param[in] ranks 2 ... most_gather_ranks
TaughtUnits compare_units(Rank ranks, MachineModel const& machine);

} // namespace trainstone
