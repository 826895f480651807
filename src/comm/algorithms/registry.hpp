#pragma once

// The table of collective algorithms. Owns the list of generators: whoever adds one adds a line here, and tests,
// cost model, counters, commbench, explain and the executor pick it up. Generators are pure functions.

#include "comm/schedule/problem.hpp"

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// What an algorithm needs of the buffers. shared_memory: all ranks are on one node and the buffers lie in the memory
/// that they share. shared_memory_if_any: it uses shared memory inside a node if the buffers lie there, messages
/// otherwise.
enum class MemoryNeed { nothing, shared_memory, shared_memory_if_any };

/// Whether all nodes do the same, so that the simulator can price one node instead of thousands. The condition is for
/// even partitions and nodes of equal size in block order. If k is a multiple of the ranks per node, rank r + k does
/// what rank r does, with all peers moved by k (or by the bits of k). nodes_if_power_of_two: the condition holds if the
/// number of ranks is a power of two; other numbers fold, and the condition does not hold.
enum class PricingSymmetry { none, nodes, nodes_if_power_of_two };

/// A generator and what it is for.
struct RegisteredAlgorithm {
  Collective collective;
  Algorithm algorithm;
  MemoryNeed needs;
  PricingSymmetry symmetry;
  Schedule (*make)(Problem const& problem, Rank rank);
  Index most_elements = std::numeric_limits<Index>::max(); ///< largest number of elements

  /// Whether the buffers should lie in shared memory, if the ranks of a node can share memory.
  bool uses_shared_memory() const { return needs != MemoryNeed::nothing; }
};

std::span<RegisteredAlgorithm const> registered_algorithms();

/// The algorithms of one collective, in the table's order.
std::vector<Algorithm> algorithms_of(Collective collective);
/// The algorithms that take any number of elements, as gradients of a model need.
std::vector<Algorithm> unlimited_algorithms_of(Collective collective);
/// "auto", and the names of those that `is_legal` allows: what a key may say that names an algorithm.
std::vector<std::string>
algorithm_names(Collective collective, std::function<bool(Algorithm)> const& is_legal = [](Algorithm) { return true; });

/// Whether the algorithm sends its data in segments of Problem::segment elements.
bool is_segmented(Algorithm algorithm);

/// The collective that a flag names. \throws InputError listing the legal names
Collective parse_collective(std::string_view name);
/// The algorithm that a deck or flag names. \throws InputError listing the legal names
Algorithm parse_algorithm(Collective collective, std::string_view name);

/// The table's line. \throws Error if there is none
RegisteredAlgorithm const& find_algorithm(Collective collective, Algorithm algorithm);

/// Why an algorithm cannot solve a problem ("shared works on one node only, these ranks are on 2"); empty if it can.
std::string refusal(Problem const& problem, Algorithm algorithm);

/// The schedule of `rank` among problem.ranks() ranks.
/// \throws InputError if the algorithm refuses the problem    \throws Error if the problem contradicts itself
Schedule make_schedule(Problem const& problem, Algorithm algorithm, Rank rank);

/// The schedules of all ranks, in order: what the simulator takes.
std::vector<Schedule> make_schedules(Problem const& problem, Algorithm algorithm);

} // namespace trainstone
