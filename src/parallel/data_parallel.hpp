#pragma once

// Data parallelism (strategy "ddp", one message per group after backward): every rank holds all state, runs its own
// micro-batches, sums the gradients of all ranks and makes the same update. Owns the collectives of the gradient, the
// global norm and the optimizer's step. Promises: with equal parameters before a step, all ranks hold equal bits after
// it. Does not run the model and does not know about data.
// Source: PyTorch Distributed: Experiences on Accelerating Data Parallel Training, arXiv:2006.15704.

#include "comm/communicator.hpp"
#include "comm/counters.hpp"
#include "comm/execution/execution.hpp"
#include "core/memory.hpp"
#include "parallel/config.hpp"
#include "parallel/gradient_reduction.hpp"
#include "parallel/model_state.hpp"

#include <vector>

namespace trainstone {

class DataParallel {
public:
  /// The parts of the arena that `rank` takes.
  static std::vector<PlannedTensor> buffer_plan(ParameterTable const& table, GradientReduction const& reduction,
                                                Rank rank);
  /// What `rank` sends per step.
  static Traffic traffic(ParameterTable const& table, GradientReduction const& reduction, Rank rank);

  /// Everything referred to must outlive the object. Takes buffer_plan() from `buffers`.
  DataParallel(ExecutionSpace const& exec, Communicator& communicator, ParameterTable const& table, ModelState& state,
               GradientReduction const& reduction, Arena& buffers);

  /// Sums the gradients over all ranks, group after group in the order in which backward completes them. On return the
  /// sums are complete for work enqueued on the constructor's instance.
  void reduce();

  /// Clips by the global norm and updates parameters and moments with AdamW. Waits for the norm; returns it (of the
  /// gradient before clipping). `step` counts from 1.
  double update(ExecutionSpace const& exec, OptimizerConfig const& optimizer, double learning_rate, std::int64_t step);

  /// Whether any value of a vector is infinite or NaN. Waits.
  bool has_non_finite(ExecutionSpace const& exec, Vector<float const> values);

  /// The group whose summed gradient has a value that is not finite, the first in backward's order, or -1. Waits.
  std::int64_t find_non_finite_group(ExecutionSpace const& exec);

private:
  double norm(ExecutionSpace const& exec);

  ParameterTable const* m_table;
  ModelState* m_state;
  std::vector<Execution> m_reductions; ///< per group, in backward's order
  Vector<double> m_block_sums;
  Vector<double> m_group_sums;
  Vector<std::int64_t> m_count;
};

} // namespace trainstone
