#pragma once

// The cases on which a run tries its collectives before it trains. Owns the choice: all kinds of blocks, a bucket in
// its pieces, and a group of parameters, both in the types that training sends. Plain values, computed without MPI. The
// cases of one axis are the same on all its ranks.

#include "core/storage.hpp"
#include "parallel/plan/shard_plan.hpp"

#include <vector>

namespace trainstone {

struct CollectiveCase {
  PlannedCollective planned; ///< with its elements
  Storage storage = Storage::fp32;
  Pieces pieces = {}; ///< where the elements lie

  /// Elements of the memory that they lie in.
  Index extent() const { return pieces.is_contiguous() ? planned.problem.elements() : pieces.extent(); }
};

/// The most elements of the cases with all kinds of blocks.
inline constexpr Index most_elements_tried = 65536;

/// The cases of the plan's reductions, of the sum of the token table's gradient over two stages, and of gathers. A
/// bucket or a group is shortened: the longest message is only just long enough to be cut in two when it is staged. No
/// case takes more memory than the training or than most_elements_tried elements: data lie in the memory of a run or a
/// group, and scratch and staging are no larger than planned. (If a 16-bit type cannot add up whole numbers over this
/// number of ranks, fp32 replaces it.)
std::vector<CollectiveCase> collective_cases(ShardPlan const& plan);

} // namespace trainstone
