#pragma once

// The strategies as rows of one table: which part of parameters, gradients and optimizer state each rank holds, which
// collectives move them, and what this costs. Owns the plan that `estimate` prints, that the engine executes and that
// the checks of a run compare with. A plain value, computed without MPI and before anything is allocated.
// Source: ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, arXiv:1910.02054; PyTorch FSDP:
// Experiences on Scaling Fully Sharded Data Parallel, arXiv:2304.11277.

#include "comm/execution/pieces.hpp"
#include "comm/schedule/config.hpp"
#include "comm/schedule/counters.hpp"
#include "comm/schedule/message_buffers.hpp"
#include "comm/schedule/problem.hpp"
#include "core/memory_plan.hpp"
#include "model/part.hpp"
#include "parallel/plan/bucket.hpp"
#include "parallel/plan/recipe.hpp"

#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// The parts of the training state that lie with their owner alone (ownership.hpp) instead of whole on each rank of the
/// shard axis. Optimizer state always lies with its owner. If nothing is sharded, the axis has length 1.
struct Sharding {
  bool parameters = false;
  bool gradients = false;
};

/// A collective that the engine runs: the values that all its executions have in common.
struct PlannedCollective {
  Axis axis = Axis::shard;
  Problem problem;
  Algorithm algorithm = Algorithm::ring;
};

/// The collectives that reduce a bucket, one after another: over the shard axis first (reduce-scatter, reduce or
/// all-reduce), then over the replicas (all-reduce; or reduce to rank 0 and broadcast). None on an axis of length 1.
using BucketReduction = std::vector<PlannedCollective>;

struct MemoryItem {
  MemoryCategory category;
  std::string name;
  std::uint64_t bytes;
};

struct ShardPlan {
  std::vector<ParameterGroup> groups;
  PartTable parts; ///< of the model
  Mesh mesh;
  Ownership ownership;                       ///< among the ranks of a shard group
  Topology topology = Topology::one_node(1); ///< of all ranks
  Rank rank = 0;
  Sharding sharding;
  Index turns = 1;                                       ///< micro-batches per rank and step
  bool main_device = false;                              ///< rank 0 reads the data of all ranks, collects gradients
  MessageBuffers message_buffers = MessageBuffers::host; ///< what MPI is given
  StateTypes types;
  Index moments = 2; ///< vectors that the optimizer keeps
  bool ordered = false;
  bool overlap = true;
  /// true: reduce after every micro-batch, over the innermost axis that is longer than 1; false: once, after the last
  /// one
  bool reduce_each = false;
  bool across_each = false; ///< where both axes are there: over the replicas, too
  Index in_flight = 2;
  Index prefetch = 1;
  BucketPlan buckets;
  BucketReduction reduction;                             ///< of a bucket without elements
  std::vector<std::optional<PlannedCollective>> gathers; ///< of every group's parameters; none on an axis of length 1
  std::optional<PlannedCollective> norm_gather;          ///< of the squared sums of all blocks
  std::vector<PlannedCollective> state_broadcasts;       ///< of every group, from rank 0; none: each sets its own

  BucketReduction reduction_of(Bucket const& bucket) const;
  /// Where the data of a collective of the bucket's reduction lie in the run's memory. On the shard axis this is the
  /// whole bucket, on the other axis this rank's share of it. Empty for a collective of sums, which lie elsewhere.
  Pieces pieces_of(Bucket const& bucket, PlannedCollective const& step) const;

  Rank member() const { return mesh.index(Axis::shard, rank); }
  Index elements() const { return groups.back().offset + groups.back().padded; }
  Index share_elements() const { return ownership.elements(member()); }
  Index micro_batches() const { return turns * mesh.data(); }
  Index largest_group() const;
  /// This rank's share of a group, counted from the group's begin; and where it lies in a vector of all its shares.
  Range share(Index group) const { return ownership.share(group, member()); }
  Index share_offset(Index group) const { return ownership.offset(group, member()); }

  /// Where this rank's share of a group begins, in a vector of its shares alone or of everything.
  Index share_begin(Index group, bool shares_alone) const;

  /// Where the norm's block sums of an owner's share of a group begin among all block sums. These are ordered by
  /// member, then by group.
  Index norm_blocks_begin(Index group, Rank owner) const;

  /// The number, among the micro-batches of all ranks, of a rank's own micro-batch `own`. Ranks that reduce gradients
  /// after every micro-batch run neighbouring ones, so that the sums over ranks and micro-batches are subtrees of one
  /// tree over all micro-batches.
  Index micro_batch(Index own) const { return micro_batch(own, rank); }
  Index micro_batch(Index own, Rank of) const;

  /// Whether fresh gradients have their own memory beside the sums. This memory has one slot per run in flight, and one
  /// slot for the run of root, which lives from head to embed.
  bool fresh_gradients_apart() const { return reduce_each && (sharding.gradients || turns > 1); }
  /// A run's memory among the fresh gradients, or in the flat gradient.
  Range run_memory(Index run) const;
  Index fresh_elements() const;
  /// Whether the updated shares of owners are gathered after the update, because every rank keeps all parameters.
  bool gathers_after_update() const { return !sharding.parameters && mesh.shard > 1; }
  /// Whether fresh gradients become sums in place, micro-batch by micro-batch (ordered only), before they are reduced.
  bool folds_in_place() const { return ordered && !fresh_gradients_apart(); }
  /// Number of vectors for sums of 2^k micro-batches that wait for their partners (ordered only).
  Index waiting_sums() const;
  /// Elements of such a vector: as many as the gradients' sum has on this rank.
  Index sum_elements() const { return sharding.gradients ? share_elements() : elements(); }
  Index gather_slots() const { return sharding.parameters ? prefetch + 1 : 0; }
  /// Whether replicas reduce sums in place, instead of fresh gradients.
  bool across_on_sums() const { return sharding.gradients && mesh.replica > 1 && !across_each; }
  /// Whether a collective of the reduction works on sums over micro-batches, once per step. Otherwise it works on fresh
  /// gradients.
  bool is_of_sums(PlannedCollective const& step) const { return step.axis == Axis::replica && across_on_sums(); }
  /// The ranks that share a memory of this rank: fresh gradients (the flat gradient, if nothing is staged), sums with
  /// their own memory, parameters (the flat vector or the gather slots).
  std::optional<Axis> sharers_of_fresh() const;
  std::optional<Axis> sharers_of_sums() const;
  std::optional<Axis> sharers_of_parameters() const;

  /// The type in which gradients and their sums are kept and sent; fp32 in ordered mode.
  Storage gradient_storage() const { return ordered ? Storage::fp32 : types.gradients; }
  /// Whether the complete sum is rounded once, to the storage type of gradients.
  bool rounds_sums() const { return gradient_storage() != types.gradients; }

  /// Elements of scratch that reductions and gathers need, per one in flight.
  Index reduction_scratch() const;
  Index gather_scratch() const;

  /// Bytes of pinned memory for staged messages: of each reduction or gather in flight, and of the norm.
  std::uint64_t pinned_reduction_bytes() const;
  std::uint64_t pinned_gather_bytes() const;
  std::uint64_t pinned_norm_bytes() const;

  /// The memory that the engine allocates, and the memory that it takes from the caller's arena and pinned memory.
  std::vector<MemoryItem> memory() const;
  std::vector<PlannedTensor> buffers() const;
  std::vector<PlannedTensor> pinned_buffers() const;
};

/// \param[in] parallel  checked: find_parallel_problem() has nothing to say
/// \throws InputError   if an algorithm is unknown or cannot solve its problem
ShardPlan make_shard_plan(ParallelConfig const& parallel, OptimizerConfig const& optimizer,
                          PrecisionConfig const& precision, CommConfig const& comm, ParameterTable const& table,
                          Topology const& topology, Rank rank, Index turns);

/// The problem of the strategy on this number of data ranks and micro-batches per rank, if there is one; names the
/// nearest legal values.
std::optional<ConfigProblem> find_parallel_problem(ParallelConfig const& parallel, CommConfig const& comm, Index ranks,
                                                   Index turns);

/// This rank's schedule of a planned collective.
Schedule schedule_of(PlannedCollective const& planned, Mesh const& mesh, Rank rank);

} // namespace trainstone
