#pragma once

// The communicators that the simulator of steps tells apart, and what ranks that meet there must mean. Part of
// step_simulator.cpp.

#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/instruction.hpp"

#include <compare>
#include <optional>
#include <utility>
#include <vector>

namespace trainstone::Impl {

/// A communicator; by default the communicator of all ranks.
struct LineName {
  std::optional<Axis> axis = {};
  int colour = 0; ///< of the line of the axis
  /// Of two stages of a line: messages of a kind from a sender, or the sum of the token table's gradient. Of workers
  /// and servers by priority: what they push of a bucket, or pull of a unit. None: the whole line.
  std::optional<std::pair<Act, Index>> pair = {};

  auto operator<=>(LineName const&) const = default;
};

/// This rank's line of an axis.
LineName line_name(Axis axis, ShardPlan const& plan);
/// The first and the last stage of this rank's line.
LineName line_of_ends(ShardPlan const& plan);
/// Of a reduction or a gather. By priority each has a tag of its own.
LineName line_of_collective(Instruction const& start, Axis axis, ShardPlan const& plan);
/// The channel of a send or a receive.
LineName channel_of(Instruction const& message, ShardPlan const& plan);
/// All communicators that this rank is in.
std::vector<LineName> lines_of(ShardPlan const& plan);

constexpr bool is_message(Act act) { return act == Act::send || act == Act::receive; }

/// A send or a receive as both ranks must mean it: the send, with the chunk that reads it.
Instruction meaning_of(Instruction const& message, ShardPlan const& plan);

} // namespace trainstone::Impl
