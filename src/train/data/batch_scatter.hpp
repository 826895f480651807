#pragma once

// Training data of naive data parallelism: rank 0 reads the micro-batches of all ranks and sends each its own. Owns the
// buffer that they lie in and the scatter. Does not know where rank 0 reads.

#include "comm/execution/execution.hpp"
#include "train/data/batch_loader.hpp"
#include "train/plan/run_plan.hpp"

namespace trainstone {

class BatchScatter {
public:
  /// Takes its part of data_plan(plan) from `data`, and of mirror_plan(plan) from `mirrors`. Everything referred to
  /// must outlive the object.
  BatchScatter(ExecutionSpace const& exec, Communicator& communicator, RunPlan const& plan, Arena& data,
               PinnedMemory& mirrors);

  /// A source that gives every rank its own micro-batch of this number. All ranks call it: rank 0 asks `all`, and the
  /// other ranks wait for rank 0. The source refers to this object and to `all`.
  BatchSource source(BatchSource const& all, Index own_micro_batch);

private:
  StateLayout const* m_layout;
  Mirrored m_batches; ///< of rank after rank: its inputs, then its targets
  Execution m_scatter;
};

} // namespace trainstone
