#pragma once

// Traces of steps as a run would write them, of instructions that take made-up times.

#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/instruction.hpp"
#include "result/trace.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace trainstone::test {

/// Every instruction of the lists takes so many us, one after the other, with a kernel in it.
inline std::vector<TimelineEvent> events_of(ShardPlan const& plan, std::vector<std::vector<Segment>> const& parts,
                                            std::vector<std::int64_t> const& microseconds) {
  std::vector<TimelineEvent> events;
  std::int64_t now = 5000;
  for (std::size_t i = 0; i < parts.size(); ++i)
    for_each_instruction(parts[i], [&](Instruction const& one) {
      std::int64_t const end = now + 1000 * microseconds[i];
      events.push_back({Lane::compute, to_string(one, plan), now, end});
      events.push_back({Lane::compute, "trainstone::model::something", now, end});
      now = end;
    });
  return events;
}

inline void write_trace(std::string const& path, std::vector<std::vector<TimelineEvent>> const& by_rank,
                        std::string const& deck_hash = "0123456789abcdef") {
  TraceFile file(path);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    TraceText text(static_cast<std::int64_t>(rank), fmt::format("rank {}", rank), deck_hash, by_rank[rank].size(),
                   [&](std::size_t number) { return by_rank[rank][number]; });
    for (std::string piece = text.next(); !piece.empty(); piece = text.next()) file.add(piece);
  }
  file.finish();
}

} // namespace trainstone::test
