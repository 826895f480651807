#pragma once

// A training step of a strategy as text: who owns what, then for every moment one line per rank and one cell per
// unit of parameters, and the collectives that start. Also owns the words that the picture shares. Pure functions.

#include "comm/schedule/partition.hpp"

#include <string>
#include <vector>

namespace trainstone {

struct UnitState;
struct StepWalk;
struct WalkedCollective;

/// "zero3 on 4 ranks, 1 node: one training step of a GPT with 2 blocks, Psi = 4096 parameters with padding"
std::string strategy_title(std::string const& name, StepWalk const& walk);

/// The owners of elements and the state that each rank keeps, in a sentence or two.
std::string strategy_meaning(StepWalk const& walk);

/// "0/-", "all/own", ">/2": the parts of a unit's parameters and of its gradient that a rank has; of mixed recipes also
/// of its optimizer state.
std::string held_text(StepWalk const& walk, Index unit, UnitState const& state, Rank rank);

/// "all_gather ring of parameters of root: every rank sends 1536 elements"
std::string collective_text(StepWalk const& walk, WalkedCollective const& collective);

/// The line of a collective that starts as a moment ends: "then starts: all_gather ..."; "then: " if it follows the
/// collective before it.
std::string end_text(StepWalk const& walk, WalkedCollective const& collective);

/// "block 1, root" by their numbers.
std::string unit_names(StepWalk const& walk, std::vector<Index> const& units);

/// The volume that the busiest rank sends in the step, by kind of collective and by axis, in elements and in units of
/// Psi; and the state that a rank keeps.
std::string strategy_sums(StepWalk const& walk);

std::string strategy_text(std::string const& name, StepWalk const& walk);

} // namespace trainstone
