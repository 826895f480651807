#pragma once

// Adds up gradients over micro-batches and ranks. Owns the place where backward writes gradients, the reductions in
// flight, and the order of additions in ordered mode. Promises: reductions of several collectives, and reductions that
// wait for scratch, keep their order, whatever their timing; sums in ordered mode are subtrees of the balanced binary
// tree over all micro-batches of the step. Does not decide when: the step program does. Knows nothing of models and
// optimizers.

#include "comm/execution/execution_queue.hpp"
#include "model/gpt.hpp"
#include "parallel/engine/mesh_communicators.hpp"
#include "parallel/engine/state_memory.hpp"
#include "parallel/plan/reduction_plan.hpp"
#include "parallel/plan/state_layout.hpp"

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

namespace trainstone {

class GradientReducer {
public:
  /// Where gradients are while they are fresh, and their sums: the same memory unless they lie apart.
  struct Memory {
    StateMemory* fresh;
    StateMemory* sums;
    std::vector<StoredVector> scratch;         ///< one per reduction in flight
    std::vector<std::span<std::byte>> staging; ///< one per reduction in flight, of its messages
    std::vector<StoredVector> waiting;         ///< reductions.waiting_sums, in fp32
  };

  /// \param[in] exec           instance of the kernels that make gradients and use sums
  /// \param[in] communication  instance of the reductions
  /// Everything referred to must outlive the object. Collective.
  GradientReducer(ExecutionSpace const& exec, ExecutionSpace const& communication, MeshCommunicators& communicators,
                  ExecutionQueue& queue, ReductionPlan const& reductions, StateLayout const& layout, Memory memory);

  /// Where backward puts a unit's gradient of a micro-batch. Nothing may be in flight there.
  GradientTarget target(Index unit, Index micro_batch, bool begins);
  /// The unit's gradient of a micro-batch takes its place in the tree over micro-batches, in place.
  void fold(Index unit, Index micro_batch);
  /// Starts to reduce a bucket's fresh gradients when the work that is enqueued on exec now has ended. If gradients are
  /// reduced in place and an earlier reduction uses the scratch, this one starts when the earlier one has ended. By
  /// priority, a worker's reductions start one after the other.
  void reduce(Index bucket);
  /// Waits for it. Afterwards what was reduced is complete for work enqueued on exec.
  void wait_reduced(Index bucket);
  /// By priority: whether it was started and has ended. Does not advance any.
  bool is_reduced(Index bucket);
  /// Adds what was reduced to the bucket's sums.
  void accumulate(Index bucket, Index micro_batch);
  /// Starts to reduce a bucket's sums over replicas; waits for it.
  void reduce_sums(Index bucket);
  void wait_sums(Index bucket);
  /// Adds embed's part of the token table's summed gradient to head's, where they lie apart.
  void tie();
  /// Continues reductions whose collectives have ended in the queue, without waiting. The caller drives the queue.
  void advance();
  /// Waits for all reductions.
  void finish();

  /// This rank's share of a group's summed gradient.
  StoredVector share(Index group) const;
  /// Pinned memory of the messages of one reduction. Others may use it after finish().
  std::span<std::byte> idle_staging() const { return m_memory.staging.front(); }

private:
  /// A reduction of fresh gradients: one collective after another.
  struct Work {
    Index bucket;
    InstanceEvent complete; ///< the gradient is, as far as this rank is concerned
    std::size_t step = 0;   ///< of reductions.collectives, that is under way
  };
  enum class Wait { no, yes };

  void prepare_executions(ExecutionSpace const& communication, MeshCommunicators& communicators);
  void start_by_priority(Index bucket);
  bool has_scratch(Index bucket) const;
  void start_due();
  bool go_on(Work& work, Wait wait);
  void finish_oldest();
  Execution& execution(Index bucket, std::size_t step);
  Range place_of_share(Gradient const& gradient) const;
  StoredVector share_of(Gradient const& gradient) const;
  void fold(StoredVector value, Index begin, Index micro_batch);

  ExecutionSpace m_exec;
  ExecutionQueue* m_queue;
  ReductionPlan const* m_reductions;
  StateLayout const* m_layout;
  Memory m_memory;
  std::size_t m_fresh_steps = 0;       ///< of reductions.collectives: those of fresh gradients come first
  std::vector<Execution> m_executions; ///< of every bucket the steps of its reduction
  std::vector<Bucket> m_buckets;
  std::deque<Work> m_in_flight; ///< in the order in which they were started
  std::deque<Work> m_due;       ///< complete, but for scratch: these are started next, in this order
  std::vector<Index> m_sums;    ///< buckets whose sums are being reduced
  std::vector<bool> m_pushed;   ///< by priority, by bucket: whether it was started, and nobody has waited
};

} // namespace trainstone
