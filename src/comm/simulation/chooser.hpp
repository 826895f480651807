#pragma once

// The meaning of `auto`: the registered algorithm with the least predicted time. Owns the choice and the assumed
// machine, for runs without a measured one. Promises: the same problem and machine give the same choice on every rank;
// no algorithm is excluded but by refusal() and its price. Does not measure.

#include "comm/schedule/problem.hpp"
#include "comm/simulation/machine_model.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace trainstone {

/// An algorithm with the segment that it is to be run with.
struct PricedAlgorithm {
  Algorithm algorithm;
  Index segment = 0; ///< elements; for Problem::segment. 0: the algorithm has none
  double seconds = 0;

  bool operator==(PricedAlgorithm const&) const = default;
};

/// "ring", "segmented_ring/16384".
std::string to_string(PricedAlgorithm const& candidate);

/// Segments that are tried where the problem names none.
inline constexpr std::array<Index, 4> tried_segments{4096, 16384, 65536, 262144};

/// The predicted times of a problem's algorithms, the quickest first. The table's order breaks ties. Algorithms that
/// refuse the problem are left out. Segmented algorithms are priced with problem.segment, or, if that is 0, with each
/// of tried_segments that cuts the data, and appear once with the best of them.
/// \param[in] among  algorithms to look at; empty: all of the collective
/// \throws InputError if all of them refuse the problem (the message says why)
std::vector<PricedAlgorithm> rank_algorithms(Problem const& problem, std::size_t element_bytes,
                                             MachineModel const& machine, std::span<Algorithm const> among = {});

/// The first of rank_algorithms.
PricedAlgorithm choose_algorithm(Problem const& problem, std::size_t element_bytes, MachineModel const& machine,
                                 std::span<Algorithm const> among = {});

/// Where no machine file is given: figures typical of servers with about ten cores' worth of memory bandwidth per rank
/// and of nodes whose assumed_ranks_per_node ranks share one port of 25 GB/s, whatever topology is priced. Messages
/// inside a node 1 us + 10 GB/s, between nodes 2 us + a rank's share of the port; additions 0.1 us + 8 GB/s of what is
/// added, copies 0.1 us + 10 GB/s; shared memory 0.1 us + 20 GB/s read and written; node barrier 0.5 us. A guess:
/// orders of magnitude, good enough to tell small messages from large ones. The share is what a rank has while all of
/// its node send; a schedule that crosses node borders with one rank per node, as rings do, is priced as if the others
/// sent, too.
MachineModel default_machine();

inline constexpr int assumed_ranks_per_node = 8;
inline constexpr double assumed_node_bandwidth = 25e9; ///< bytes per second, each way

} // namespace trainstone
