#pragma once

// The parts of the gradients that are reduced together, and their order. Owns the cut of the flat gradient into runs,
// and of runs into buckets. A run is a sequence of whole units of parameters: their gradients lie side by side and are
// reduced when the last of them is complete. Plain values, the same on all ranks. Source of sizes: PyTorch Distributed:
// Experiences on Accelerating Data Parallel Training, arXiv:2006.15704.

#include "comm/schedule/partition.hpp"
#include "model/parameter_table.hpp"
#include "parallel/plan/config.hpp"
#include "parallel/plan/gradient_layout.hpp"

#include <utility>
#include <vector>

namespace trainstone {

/// The elements of one gradient that a bucket takes: the same range of every owner's share of it.
struct BucketPart {
  Index gradient; ///< of GradientLayout::gradients
  Index group;    ///< whose gradient it is
  Range of_share; ///< counted from the share's begin
};

struct Bucket {
  Index run; ///< the run that it belongs to
  std::vector<BucketPart> parts;

  /// Of one owner's share.
  Index share_elements() const;
};

struct BucketRun {
  Index first_unit, last_unit;
  Index completed_by; ///< the unit that backward completes last
  Range gradients;    ///< of GradientLayout::gradients
  Range memory;       ///< in the flat gradient
  Index first_bucket, buckets;
  // of a single unit that is cut:
  Index share = 0;                    ///< elements of an owner's shares of the unit's gradients; 0: not cut
  Index first_slice = 0, slice = 0;   ///< of these shares, laid side by side; the last slice may be shorter
  std::vector<Index> slice_ends = {}; ///< instead, where slices are tensors; ascending

  /// Where slice `number` (from 0) of the shares lies: from their end to their begin, as backward completes a block.
  Range slice_of_share(Index number) const;
};

/// The cut as a value whose size does not grow with the number of buckets, of which a model of 10^12 parameters has
/// hundreds of thousands.
struct BucketPlan {
  /// The elements that an owner has of a gradient.
  struct Share {
    Index group;
    Index elements;
  };

  std::vector<BucketRun> runs; ///< in the order in which backward completes them
  std::vector<Share> shares;   ///< by gradient

  /// The run whose gradients lie in this unit.
  Index run_of_unit(Index unit) const;
  /// In the order in which they are reduced.
  Index buckets() const { return runs.back().first_bucket + runs.back().buckets; }
  Bucket bucket(Index number) const;
  /// One bucket of every size and composition, with the number of such buckets. Different owners are listed apart.
  std::vector<std::pair<Bucket, std::uint64_t>> by_size() const;

private:
  std::vector<Index> slices_apart(BucketRun const& run) const;
};

/// The cut, in the order of backward. Whole units form runs of up to config.bucket_bytes. A larger unit is cut into
/// slices of its shares. The first run begins with a slice of first_bucket_bytes. In every replica's part of an owner's
/// share, a slice is a multiple of 256 elements, so that reductions over replicas are balanced, too. If units have one
/// owner, all units of a run have the same owner. In a stage of a pipeline, all units of a run are of one chunk, and
/// a root without embed, which backward completes first, is a run of its own. Where servers update unit by unit, no run
/// has several units, and slice_bytes() takes the place of both limits. Granularity step makes one run with one bucket.
/// Granularity tensor makes one bucket per tensor (only if nothing is sharded).
BucketPlan make_buckets(ParameterTable const& table, StateLayout const& layout, GradientLayout const& gradients,
                        ParallelConfig const& config, std::size_t element_bytes);

} // namespace trainstone
