#pragma once

// On what a run tries its collectives before it trains. Owns the choice: blocks of every kind, and what training sends,
// a bucket in its pieces and a group of parameters in their own types. Plain values, computed without MPI; those of one
// axis are the same on all its ranks.

#include "core/storage.hpp"
#include "parallel/shard_plan.hpp"

#include <vector>

namespace trainstone {

struct CollectiveCase {
  PlannedCollective planned; ///< with its elements
  Storage storage = Storage::fp32;
  Pieces pieces = {}; ///< where the elements lie

  /// Elements of the memory that they lie in.
  Index extent() const { return pieces.is_contiguous() ? planned.problem.elements() : pieces.extent(); }
};

/// So many elements at most lie in blocks of every kind.
inline constexpr Index most_elements_tried = 65536;

/// Reductions and gathers of the plan. Of a bucket and of a group only as much as makes the longest message as long
/// that it is cut in two where messages are staged. None takes more memory than the training or most_elements_tried
/// elements: data lie in that of a run or a group, scratch and staging are no larger than planned. (But where a 16-bit
/// type cannot add up whole numbers over so many ranks fp32 takes its place.)
std::vector<CollectiveCase> collective_cases(ShardPlan const& plan);

} // namespace trainstone
