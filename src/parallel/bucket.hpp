#pragma once

// What of the gradients is reduced at a time, and in which order. Owns the cut of the flat gradient into runs (whole
// parameter groups whose gradients lie side by side and are reduced when the last of them is complete) and of these
// into buckets. Plain values, the same on all ranks.
// Source of sizes: PyTorch Distributed: Experiences on Accelerating Data Parallel Training, arXiv:2006.15704.

#include "comm/partition.hpp"
#include "model/parameter_table.hpp"
#include "parallel/config.hpp"
#include "parallel/mesh.hpp"
#include "parallel/ownership.hpp"

#include <utility>
#include <vector>

namespace trainstone {

/// The elements of one group that a bucket takes: the same range of every owner's share of the group.
struct BucketPart {
  Index group;
  Range of_share; ///< counted from the share's begin
};

struct Bucket {
  Index run; ///< the run that it belongs to
  std::vector<BucketPart> parts;

  /// Of one owner's share.
  Index share_elements() const;
};

struct BucketGroup {
  Index first_group, last_group; ///< first_group is completed last
  Range memory;                  ///< in the flat gradient
  Index first_bucket, buckets;
  // of a single group that is cut:
  Index share = 0;                    ///< elements of an owner's share; 0: not cut
  Index first_slice = 0, slice = 0;   ///< of the share; the last slice may be shorter
  std::vector<Index> slice_ends = {}; ///< instead, where slices are tensors; ascending

  /// Where slice `number` (from 0) of the share lies: from its end to its begin, as backward completes a block.
  Range slice_of_share(Index number) const;
};

/// The cut as a value whose size does not grow with the number of buckets, of which a model of 10^12 parameters has
/// hundreds of thousands.
struct BucketPlan {
  std::vector<BucketGroup> runs;  ///< in the order in which backward completes them
  std::vector<Index> group_share; ///< elements of an owner's share of every group

  /// In the order in which they are reduced.
  Index buckets() const { return runs.back().first_bucket + runs.back().buckets; }
  Bucket bucket(Index number) const;
  /// One of every size of an owner's share, with their number; those of different owners apart.
  std::vector<std::pair<Bucket, std::uint64_t>> by_size() const;
};

/// In backward's order: runs of whole groups up to config.bucket_bytes, groups beyond that in slices of the
/// shares; the first run begins with a slice of first_bucket_bytes. Slices are whole multiples of 256 elements of every
/// replica's part of an owner's share (so that reductions over replicas are balanced, too). Where groups have one
/// owner, all groups of a run have the same. Granularity step: one run with one bucket; tensor: one bucket per tensor
/// (only where nothing is sharded).
BucketPlan make_buckets(ParameterTable const& table, Mesh const& mesh, Ownership const& ownership,
                        ParallelConfig const& config, std::size_t element_bytes);

} // namespace trainstone
