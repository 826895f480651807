#pragma once

// One training step of a strategy as a list of moments. A moment says which part of every unit of parameters each
// rank has, and which collectives start. Owns the states as plain values. They come from the step program that a
// training plays. Texts and pictures of them are in src/report. A collective counts as under way until the program
// waits for it, so the walk does not depend on timing. Neither computes nor needs MPI.

#include "parallel/plan/shard_plan.hpp"

#include <string>
#include <vector>

namespace trainstone {

/// The part of a unit that a rank has.
enum class Holding {
  nothing,
  share,     ///< its share; of a gradient: of the sum over ranks
  own,       ///< of a gradient: all, of its own micro-batch
  under_way, ///< a collective brings it, or adds it up
  whole,     ///< all; of a gradient: of the sum over ranks
  copy,      ///< of parameters: all, for a while; another rank owns the unit
};

enum class StatePart { parameters, gradient, optimizer };

/// What a rank holds of a unit where the walk says `held`. A server has its share of everything, and no gradient of its
/// own; a worker has no share. If units have owners, a share is all of the unit on its owner and nothing elsewhere.
Holding held_by(StateLayout const& layout, Index unit, Rank rank, StatePart part, Holding held);
/// The optimizer state of a unit: it never moves.
Holding optimizer_held_by(StateLayout const& layout, Index unit, Rank rank);
/// Among those that share a group. Of a rank that has a share.
Rank number_of_share(Mesh const& mesh, Rank rank);

struct UnitState {
  Holding parameters = Holding::share;
  Holding gradient = Holding::nothing;
  bool operator==(UnitState const&) const = default;
};

/// A collective that starts at a moment, on all ranks.
struct WalkedCollective {
  PlannedCollective planned;
  std::string what;                ///< "parameters of root", "gradient of block 1"
  bool follows = false;            ///< it begins when the one before it has ended
  bool waits = false;              ///< it begins when an earlier one leaves it its scratch
  std::vector<Traffic> traffic;    ///< by rank, in elements
  Storage storage = Storage::fp32; ///< of an element
};

struct Moment {
  std::string name;                     ///< "start", "forward embed", "update"
  std::vector<Index> dropped;           ///< units whose whole parameters are given up, as it begins
  std::vector<WalkedCollective> before; ///< that start as it begins
  std::vector<UnitState> states;        ///< of all units, while it lasts
  std::vector<WalkedCollective> after;  ///< that start as it ends
};

struct StepWalk {
  std::vector<ShardPlan> plans; ///< by rank
  std::vector<Moment> moments;

  ShardPlan const& plan() const { return plans.front(); }
  StateLayout const& layout() const { return plan().layout; }
  Rank ranks() const { return layout().mesh.ranks(); }
  /// Whether parameters are updated in a master copy.
  bool is_mixed() const { return layout().types.master; }
};

/// A step in the middle of a training, of one micro-batch per rank. With granularity bucket every bucket is one unit.
/// \param[in] parallel  checked: find_parallel_problem() has nothing to say
StepWalk walk_step(ParallelConfig const& parallel, CommConfig const& comm, ParameterTable const& table,
                   Topology const& topology, PrecisionConfig const& precision = {});

/// All collectives of a step, as they start.
std::vector<WalkedCollective> collectives_of(StepWalk const& walk);

} // namespace trainstone
