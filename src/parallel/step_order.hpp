#pragma once

// The order of a training step: when parameter groups are gathered, how far ahead of their use, and when buckets are
// reduced. Consists of pure functions of a plan, and of a counter. The engine executes their results, and `explain`
// walks through them. Knows neither memory nor MPI.

#include "model/unit.hpp"
#include "parallel/shard_plan.hpp"

#include <optional>
#include <vector>

namespace trainstone {

/// The purpose of a pass over the units.
enum class Pass { training, evaluation };

enum class Direction { forward, backward };

/// Root, then the blocks.
std::vector<Index> all_groups(ShardPlan const& plan);

/// The groups in the order in which the units of a pass use them, if parameters are sharded. Root comes before embed
/// and again before head, which keeps it for its backward. Blocks come before forward and before backward.
std::vector<Index> gather_sequence(ShardPlan const& plan, Pass pass);
/// The place of the group that a unit reads: in this sequence, or in all_groups() if every rank keeps all. The backward
/// of embed reads nothing.
std::size_t gather_place(ShardPlan const& plan, Unit unit, Direction direction);

struct GatherAction {
  enum class Kind { start, wait };
  Kind kind;
  std::size_t place; ///< in the sequence
};

/// The progress of the gathers of a sequence: at most prefetch + 1 at a time, each in the slot of its place.
class GatherOrder {
public:
  explicit GatherOrder(ShardPlan const& plan) : m_slots(plan.prefetch + 1), m_overlap(plan.overlap) {}

  /// What to start and wait for when a sequence begins. All groups of the last sequence must have been acquired.
  std::vector<GatherAction> begin(std::vector<Index> sequence);
  /// What to start and wait for when the group at `place` is needed. This releases the slot of the group that was
  /// acquired before.
  std::vector<GatherAction> acquire(std::size_t place);

  bool is_finished() const { return m_acquired >= m_sequence.size(); }
  std::vector<Index> const& sequence() const { return m_sequence; }
  /// All places before these two were started, or acquired.
  std::size_t started() const { return m_started; }
  std::size_t acquired() const { return m_acquired; }
  Index group(std::size_t place) const { return m_sequence[place]; }
  std::size_t slot(std::size_t place) const { return place % static_cast<std::size_t>(m_slots); }

private:
  void start_up_to(std::size_t end, std::vector<GatherAction>& actions);

  Index m_slots;
  bool m_overlap;
  std::vector<Index> m_sequence;
  std::size_t m_started = 0, m_acquired = 0; ///< of the sequence
};

/// The run whose gradients lie in this group.
Index run_of_group(ShardPlan const& plan, Index group);
/// Whether gradients of this turn are reduced.
bool reduces_after(ShardPlan const& plan, Index turn);
/// The run whose buckets are reduced when a group's gradient of this turn is complete.
std::optional<Index> run_to_reduce(ShardPlan const& plan, Index group, Index turn);
/// Whether gradients of two runs lie in the same staging memory: one must be reduced before the other is written.
bool share_memory(ShardPlan const& plan, Index run, Index other);
/// Whether one of two buckets must be reduced before the other one's reduction starts: both need the same scratch.
bool share_scratch(ShardPlan const& plan, Index bucket, Index other);

} // namespace trainstone
