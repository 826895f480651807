#pragma once

// How gradients are added up over ranks, and where they lie: what plans and engines must agree on. A plain value.

#include "comm/problem.hpp"

namespace trainstone {

struct GradientReduction {
  Algorithm all_reduce = Algorithm::ring;
  Topology topology = Topology::one_node(1);
  bool shared_memory = false; ///< gradients lie in the memory that the ranks of a node share

  /// The all-reduce of so many elements, in even blocks.
  Problem problem(Index elements) const {
    return {.collective = Collective::all_reduce,
            .partition = Partition::even(elements, topology.ranks()),
            .topology = topology,
            .shared_memory = shared_memory};
  }
};

} // namespace trainstone
