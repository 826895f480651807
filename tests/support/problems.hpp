#pragma once

// Problems to try on every algorithm of a collective: awkward partitions, roots, servers, placements on nodes, with and
// without shared memory. Owns the choice; what an algorithm refuses is left out by whoever asks.

#include "comm/algorithms/registry.hpp"

#include <string>
#include <vector>

namespace trainstone::test {

struct NamedProblem {
  std::string name;
  Problem problem;
};

/// Every partition with several placements (of many ranks: few), all of which the algorithm accepts.
std::vector<NamedProblem> problems_for(RegisteredAlgorithm const& line, Rank ranks);

/// One that has work for every rank and for every kind of move: blocks of several sizes and, where the algorithm
/// allows it, several nodes.
NamedProblem typical_problem(RegisteredAlgorithm const& line, Rank ranks);

/// "all_reduce ring"
std::string name_of(RegisteredAlgorithm const& line);

} // namespace trainstone::test
