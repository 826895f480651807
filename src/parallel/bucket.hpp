#pragma once

// What of the gradients is reduced at a time, and in which order. Owns the cut of the flat gradient into runs (whole
// parameter groups whose gradients lie side by side and are reduced when the last of them is complete) and of these
// into buckets. Plain values, the same on all ranks.
// Source of sizes: PyTorch Distributed: Experiences on Accelerating Data Parallel Training, arXiv:2006.15704.

#include "comm/execution/pieces.hpp"
#include "model/parameter_table.hpp"
#include "parallel/config.hpp"
#include "parallel/mesh.hpp"

#include <vector>

namespace trainstone {

/// The elements of one group that a bucket takes: the same range of every rank's share of the group.
struct BucketPart {
  Index group;
  Range of_share; ///< counted from the share's begin
};

struct Bucket {
  Index run; ///< the run that it belongs to
  std::vector<BucketPart> parts;

  /// Of one rank's share.
  Index share_elements() const;
};

struct BucketRun {
  Index first_group, last_group; ///< first_group is completed last
  Range memory;                  ///< in the flat gradient
  Index first_bucket, last_bucket;
};

struct BucketPlan {
  std::vector<BucketRun> runs; ///< in the order in which backward completes them
  std::vector<Bucket> buckets; ///< in the order in which they are reduced
};

/// In backward's order: runs of whole groups up to config.bucket_bytes, groups beyond that in slices of the
/// shares; the first run begins with a slice of first_bucket_bytes. Slices are whole multiples of 256 elements of every
/// rank's share of the share (so that reductions over replicas are balanced, too). Granularity step: one run with one
/// bucket; tensor: one bucket per tensor (only where nothing is sharded).
BucketPlan make_buckets(ParameterTable const& table, Mesh const& mesh, ParallelConfig const& config,
                        std::size_t element_bytes);

/// A group's place among the ranks of a shard group: member m's share is the m-th of equal parts.
inline Range share_of(ParameterGroup const& group, Rank member, Rank members) {
  Index const size = group.padded / members;
  return {member * size, (member + 1) * size};
}

/// Where the elements of a bucket lie in its run's memory: all of member 0, all of member 1, ...
Pieces pieces_of(Bucket const& bucket, BucketPlan const& plan, ParameterTable const& table, Rank members);
/// The same of one member's only.
Pieces pieces_of_member(Bucket const& bucket, BucketPlan const& plan, ParameterTable const& table, Rank member,
                        Rank members);

} // namespace trainstone
