#pragma once

// "Replacing broadcast by allgather (why?)": the cost of giving all ranks all parameters in stage 3, first if every
// group has one owner who broadcasts it, then if every rank owns a part of each group. Counts come from the schedules,
// and owners from parallel/plan/ownership.hpp. Pure; renders no text (lectures/lecture_zero.hpp).

#include "comm/schedule/topology.hpp"
#include "comm/simulation/machine_model.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// Of one step: every group is gathered for forward and for backward, one after the other, in 16 bits.
struct GatherRow {
  std::string method;
  std::int64_t busiest = 0;                ///< elements that the busiest rank sends, counted
  double balance = 1;                      ///< the same over the mean of the ranks
  std::uint64_t messages = 0;              ///< of the rank that sends most of them
  std::optional<std::int64_t> exact_total; ///< elements that all ranks send, closed form
  std::int64_t counted_total = 0;
  double without_start = 0;  ///< seconds, simulated with alpha = 0
  double priced = 0;         ///< seconds, simulated on the machine
  double memory_balance = 1; ///< parameters owned: largest over mean
};

struct TaughtGathers {
  std::string model;
  std::int64_t parameters = 0; ///< padded
  std::int64_t most_owned = 0; ///< by one rank, of whole groups
  std::vector<GatherRow> rows;
};

inline constexpr std::int64_t most_gather_ranks = 64; ///< every message of every broadcast is simulated

/// \param[in] ranks 2 ... most_gather_ranks
TaughtGathers compare_taught_gathers(Rank ranks, MachineModel const& machine);

} // namespace trainstone
