#pragma once

// How gradients are added up: in which buckets, by which collectives, after which micro-batches, and in which memory
// they lie meanwhile. A plain value beside the layout of the state (state_layout.hpp), which says who keeps the sums.
// Does not decide what waits for what: the passes of a step program do (parallel/program/passes.hpp).

#include "comm/execution/pieces.hpp"
#include "parallel/plan/bucket.hpp"
#include "parallel/plan/gradient_layout.hpp"
#include "parallel/plan/planned_collective.hpp"
#include "parallel/plan/state_layout.hpp"

#include <optional>
#include <vector>

namespace trainstone {

/// The collectives that reduce a bucket, one after another: over the shard axis first (reduce-scatter, reduce or
/// all-reduce), then over the replicas (all-reduce; or reduce to rank 0 and broadcast). None on an axis of length 1.
using BucketReduction = std::vector<PlannedCollective>;

struct ReductionPlan {
  GradientLayout gradients;
  BucketPlan buckets;
  BucketReduction collectives; ///< of a bucket without elements
  Index in_flight = 2;         ///< reductions at a time
  /// Servers update a unit when its gradients are there. All buckets may be under way, each with scratch of its own,
  /// and a worker sends one after the other: of those that are complete, what the next forward needs first.
  bool by_priority = false;
  /// No reduction starts before the end of backward, so that a worker that still computes does not keep servers from
  /// others.
  bool after_backward = false;
  /// true: reduce after every micro-batch, over the innermost axis that is longer than 1; false: once, after the last
  /// one
  bool reduce_each = false;
  bool ordered = false;   ///< sums are subtrees of one tree over all micro-batches
  Index waiting_sums = 0; ///< vectors for sums of 2^k micro-batches that wait for their partners (ordered only)
  Storage storage = Storage::fp32; ///< of gradients and their sums, in memory and in messages; fp32 in ordered mode
  bool rounds_sums = false;        ///< the complete sum is rounded once, to the storage type of the layout's gradients
  bool across_on_sums = false;     ///< replicas reduce sums in place, once per step, instead of fresh gradients
  /// Fresh gradients have their own memory beside the sums. This memory has one slot per run in flight, and one slot
  /// for the run of root if this lives from head to embed.
  bool fresh_gradients_apart = false;
  bool root_lives_long = true; ///< embed and head are both here
  bool looks_up_alone = false; ///< embed is here, and head not: the token table's gradient is embed's alone

  /// The collectives of a bucket.
  BucketReduction reduction_of(Bucket const& bucket, StateLayout const& layout) const;
  /// Where the data of a collective of the bucket's reduction lie in the run's memory. On the shard axis this is the
  /// whole bucket, on the other axis this rank's share of it. Empty for a collective of sums, which lie elsewhere.
  Pieces pieces_of(Bucket const& bucket, PlannedCollective const& step, StateLayout const& layout) const;

  /// Whether a collective of the reduction works on sums over micro-batches. Otherwise it works on fresh gradients.
  bool is_of_sums(PlannedCollective const& step) const { return step.axis == Axis::replica && across_on_sums; }
  /// Whether backward adds the gradient of a micro-batch to those of earlier ones.
  bool adds_in_place() const { return !ordered && !fresh_gradients_apart; }
  /// Whether fresh gradients become sums in place, micro-batch by micro-batch (ordered only), before they are reduced.
  bool folds_in_place() const { return ordered && !fresh_gradients_apart; }

  /// Whether the two parts of the token table's gradient lie apart and are added at the end of a step.
  bool adds_parts_of_table() const { return gradients.looked_up().has_value(); }

  /// A run's memory among the fresh gradients, or in the flat gradient.
  Range run_memory(Index run) const;
  /// A gradient among the fresh gradients, or in the flat gradient. \param[in] run  the one that it belongs to
  Index fresh_offset(Index gradient, Index run) const;
  Index fresh_elements() const;
  /// Of the summed gradients that a rank keeps.
  Index kept_elements(StateLayout const& layout) const {
    return layout.keeps_shares_of_gradients() ? gradients.share_elements : gradients.elements;
  }
  /// Where the elements of a slice begin in the unit that it is cut from. Of the slices of every owner's share, that of
  /// the first owner lies first.
  Index slice_begin(BucketRun const& run, Index number) const;
  /// Whether gradients of two runs lie in the same memory: one must be reduced before the other is written.
  bool share_memory(Index run, Index other) const { return run_memory(run).overlaps(run_memory(other)); }
  /// Whether one of two buckets must be reduced before the other one's reduction starts: both need the same scratch.
  bool share_scratch(Index bucket, Index other) const { return bucket % in_flight == other % in_flight; }

  /// The axis whose ranks share this rank's memory of fresh gradients; and of the gradients that are kept, which are
  /// the sums, or the fresh ones if these do not lie apart.
  std::optional<Axis> sharers_of_fresh() const;
  std::optional<Axis> sharers_of_kept() const;
};

/// Of buckets with equal shapes, the collectives are the same, and the places of their elements differ by a shift:
/// blocks are cut alike. The shape is the owner, and of every part the size of the group and the range of each share.
std::vector<Index> shape_of(Bucket const& bucket, StateLayout const& layout);

/// Of buckets that are alike, the first one.
std::vector<Bucket> different_buckets(ReductionPlan const& reductions, StateLayout const& layout);

/// \param[in] parallel  checked: find_parallel_problem() has nothing to say
ReductionPlan make_reduction_plan(ParallelConfig const& parallel, AlgorithmChoice const& choice,
                                  ParameterTable const& table, StateLayout const& layout);

} // namespace trainstone
