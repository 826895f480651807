#pragma once

// Which memory the moves of schedules touch, and whether two of them disturb each other. Owns the rule: ranges that
// overlap, one of them written, and nothing that orders the two. For the simulator alone.

#include "comm/schedule/schedule.hpp"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace trainstone::Impl {

struct MemoryAccess {
  Rank owner; ///< of the memory; a rank's number, never own_memory
  BufferId buffer;
  Range range;
  bool writes;
  std::size_t sequence; ///< accesses of one sequence come one after the other, those of two may coincide
  Rank rank;            ///< who accesses it
  std::size_t round;
  Move const* move;
};

/// Adds what a move of the schedule reads and writes; ranges without elements are left out.
void append_accesses(Schedule const& schedule, std::size_t round, Move const& move, std::size_t sequence,
                     std::vector<MemoryAccess>& accesses);

/// Two accesses of different sequences that overlap, one of them writing. Work: n log n.
std::optional<std::pair<MemoryAccess, MemoryAccess>> find_conflict(std::vector<MemoryAccess> accesses);

} // namespace trainstone::Impl
