#pragma once

// Adds up gradients over micro-batches and ranks. Owns the place where backward writes gradients, the order and number
// of reductions in flight, and the order of additions in ordered mode. Promises: all ranks start the same collectives
// in the same order, whatever their timing; sums in ordered mode are subtrees of the balanced binary tree over all
// micro-batches of the step. Knows nothing of models and optimizers.

#include "comm/execution/execution_queue.hpp"
#include "model/gpt.hpp"
#include "parallel/mesh_communicators.hpp"
#include "parallel/shard_plan.hpp"
#include "parallel/state_memory.hpp"

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

namespace trainstone {

class GradientReducer {
public:
  /// Where gradients are while they are fresh, and their sums: the same memory unless plan.fresh_gradients_apart().
  struct Memory {
    StateMemory* fresh;
    StateMemory* sums;
    std::vector<StoredVector> scratch;         ///< one per reduction in flight
    std::vector<std::span<std::byte>> staging; ///< one per reduction in flight, of its messages
    std::vector<StoredVector> waiting;         ///< plan.waiting_sums(), in fp32
  };

  /// \param[in] exec           instance of the kernels that make gradients and use sums
  /// \param[in] communication  instance of the reductions
  /// Everything referred to must outlive the object. Collective.
  GradientReducer(ExecutionSpace const& exec, ExecutionSpace const& communication, MeshCommunicators& communicators,
                  ExecutionQueue& queue, ShardPlan const& plan, Memory memory);

  /// Where backward puts a group's gradient at this turn; may wait for what is in flight there.
  GradientTarget target(Index group, Index turn);
  /// The group's elements from `begin` on are complete: starts the buckets that lie there, if the plan overlaps.
  void completed_from(Index group, Index begin, Index turn);
  /// The group's gradient of this turn is complete, as far as this rank is concerned.
  void completed(Index group, Index turn);
  /// Continues reductions whose collectives have ended in the queue, without waiting. The caller drives the queue.
  void advance();
  /// Waits for all reductions. After the last turn of a step the sums are complete for work enqueued on exec.
  void finish();

  /// This rank's share of a group's summed gradient.
  StoredVector share(Index group) const;
  /// Pinned memory of the messages of one reduction. Others may use it after finish().
  std::span<std::byte> idle_staging() const { return m_memory.staging.front(); }

private:
  struct Work {
    Index bucket;
    Index turn;
    std::size_t step;       ///< of plan.reduction, that is under way
    InstanceEvent complete; ///< the gradient is, as far as this rank is concerned
  };
  enum class Wait { no, yes };

  void prepare_executions(ExecutionSpace const& communication, MeshCommunicators& communicators);
  void make_due(Index bucket, Index turn);
  void begin_step(Work const& work);
  std::size_t steps(Index turn) const;
  bool has_scratch(Index bucket) const;
  void start_due();
  bool go_on(Work& work, Wait wait);
  Execution& execution(Work const& work);
  bool ended(Execution const& execution, Wait wait);
  bool last_turn(Index turn) const { return turn + 1 == m_plan->turns; }
  void add_up(Work const& work);
  void fold(StoredVector value, Index begin, Index turn);
  void finish_run(Index run);
  void finish_oldest();
  BucketGroup const& run_of(Index bucket) const;

  ExecutionSpace m_exec;
  ExecutionQueue* m_queue;
  ShardPlan const* m_plan;
  Memory m_memory;
  std::size_t m_fresh_steps = 0;       ///< of plan.reduction: those of fresh gradients come first
  std::vector<Execution> m_executions; ///< of every bucket the steps of its reduction
  std::vector<Bucket> m_buckets;
  std::deque<Work> m_in_flight; ///< in the order in which they were started
  Index m_begun = 0;            ///< buckets of the run that backward completes at present
  std::deque<Work> m_due;       ///< complete, but for scratch: these are started next, in this order
};

} // namespace trainstone
