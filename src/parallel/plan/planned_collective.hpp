#pragma once

// A collective as a plan has it: on which axis of the mesh, which problem, by which algorithm. Owns the choice of the
// algorithm: the deck's, or the default of the strategy. Plain values; knows nothing of gradients and parameters.

#include "comm/schedule/config.hpp"
#include "comm/schedule/problem.hpp"
#include "comm/schedule/schedule.hpp"
#include "parallel/plan/mesh.hpp"

#include <optional>

namespace trainstone {

/// A collective that the engine runs: the values that all its executions have in common.
struct PlannedCollective {
  Axis axis = Axis::shard;
  Problem problem;
  Algorithm algorithm = Algorithm::ring;
  std::optional<StagePair> stages = {}; ///< of the pipeline axis: these two alone
};

/// A rank's number among those that take part.
Rank place_of(Rank rank, PlannedCollective const& planned, Mesh const& mesh);
/// This rank's schedule of a planned collective.
Schedule schedule_of(PlannedCollective const& planned, Mesh const& mesh, Rank rank);

/// Whether gathers of two units of a plan are the same problem: a model of many blocks has few kinds.
bool are_alike(PlannedCollective const& gather, PlannedCollective const& other);

/// The axis whose ranks share the memory in which the collective works, if they do.
std::optional<Axis> sharers_of(PlannedCollective const& planned);

/// What the algorithms of a plan follow from.
struct AlgorithmChoice {
  CommConfig comm;
  bool ordered = false;     ///< sums are the same for every number of ranks
  bool main_device = false; ///< rank 0 collects and sends out
  bool direct = false;      ///< every rank serves a share: to and from its owner in one message
  Rank servers = 0;         ///< dedicated

  /// What the deck says, or the default of the engine's collectives.
  /// \throws InputError if the deck's algorithm is unknown
  Algorithm of(AlgorithmKey const& key) const;
};

/// Between workers and servers there is one algorithm, which no key names.
/// \param[in] line  the topology of the ranks of the axis
/// \throws InputError if the algorithm cannot solve the problem
PlannedCollective planned_collective(AlgorithmChoice const& choice, Axis axis, Topology const& line,
                                     Collective collective, Index elements);

} // namespace trainstone
