#pragma once

// One engine for data parallelism (also naive), ZeRO-1, -2, -3 (FSDP) and HSDP. It executes its ShardPlan. Owns the
// training state, the communicators of the mesh, and the collectives of parameters, gradients and norm. The step loop
// calls it at the borders of units. If the plan overlaps, kernels drive the collectives in flight. Promises: if ranks
// hold equal parameters before a step, they hold the same bits after it; the engine allocates and sends exactly what
// the plan says. Does not run the model and does not know about data.

#include "comm/buffers.hpp"
#include "comm/communicator.hpp"
#include "comm/execution/execution_queue.hpp"
#include "core/launch.hpp"
#include "parallel/gradient_norm.hpp"
#include "parallel/gradient_reducer.hpp"
#include "parallel/mesh_communicators.hpp"
#include "parallel/optimizer_update.hpp"
#include "parallel/parameter_gatherer.hpp"
#include "parallel/shard_plan.hpp"
#include "parallel/step_order.hpp"
#include "parallel/tensor_share.hpp"

#include <functional>
#include <memory>

namespace trainstone {

/// The memory that the backward pass of a unit reads and writes.
struct BackwardMemory {
  ConstStoredVector parameters; ///< of its group; empty for embed, which reads none
  GradientTarget gradients;
};

class ShardedEngine {
public:
  /// Takes plan.buffers() from `buffers` and plan.pinned_buffers() from `pinned`. Collective; everything referred to
  /// must outlive the object.
  ShardedEngine(ExecutionSpace const& exec, Communicator const& world, MemoryLedger& ledger, ShardPlan const& plan,
                ParameterTable const& table, Arena& buffers, PinnedMemory& pinned);
  ShardedEngine(ShardedEngine const&) = delete;
  ShardedEngine& operator=(ShardedEngine const&) = delete;
  ~ShardedEngine();

  /// Before the units of a micro-batch are run: forward and backward, or forward alone. \param[in] turn from 0
  void begin(Pass pass, Index turn);
  /// The whole parameters of the unit's group, until the next unit's.
  ConstStoredVector before_forward(Unit unit);
  BackwardMemory before_backward(Unit unit);
  void after_backward(Unit unit);

  /// Waits for the sums of all gradients of the step; returns their norm, the same on all ranks.
  double gradient_norm();
  /// Updates parameters and moments with numbers.gradient_scale times the gradients.
  void update(OptimizerConfig const& optimizer, UpdateNumbers const& numbers);
  /// Continues the collectives in flight, without waiting.
  void advance();
  /// While it lives, every launch of this thread calls advance(), if the plan overlaps. Otherwise no launch does.
  [[nodiscard]] BetweenLaunches::Scoped drive_between_launches();
  /// Waits for all collectives in flight. Then parameters are complete.
  void finish();

  /// The index of the first group in backward's order whose summed gradient is not finite here, or -1. Waits.
  Index find_non_finite_group(Vector<std::int64_t> count);

  /// Sets parameters. `fill` is called for every group. It gets the range of the group's elements (padded) that belong
  /// into `values`. The values are rounded to the type of the model. If the plan sends the state from rank 0, only rank
  /// 0 calls `fill`, and all ranks get the parameters and moments of rank 0. Collective; waits. If `fill` throws, all
  /// ranks throw the same.
  void set_parameters(std::function<void(Index group, Range share, Vector<float> values)> const& fill);
  /// Sets this rank's share of all moments to 0: the optimizer begins anew. Enqueued.
  void clear_moments();
  /// Hands every group in turn, whole, to `read`; collective.
  void read_parameters(std::function<void(Index group, ConstStoredVector whole)> const& read);
  /// This rank's share of the parameters of a group, of their master copy (fp32: the parameters themselves), and of
  /// the group's summed gradient.
  StoredVector parameter_share(Index group) const { return m_gatherer.share(group); }
  Vector<float> master_share(Index group) const;
  /// This rank's share of a vector that the optimizer keeps, one of plan().moments.
  Vector<float> moment_share(Index moment, Index group) const;
  StoredVector gradient_share(Index group) const { return m_reducer.share(group); }
  /// All parameters of a group, if every rank holds them; finish() comes first.
  StoredVector whole_parameters(Index group) const { return m_gatherer.whole(group); }

  ShardPlan const& plan() const { return *m_plan; }
  MeshCommunicators& communicators() { return m_communicators; }

private:
  class NoProgress;

  void gather_updated();
  void broadcast_state();

  ExecutionSpace m_exec, m_communication;
  ShardPlan const* m_plan;
  MeshCommunicators m_communicators;
  StateMemory m_parameters, m_slots, m_gradients, m_fresh_gradients;
  Allocation m_optimizer_memory;
  std::vector<Vector<float>> m_moments;
  Vector<float> m_master, m_gradient_copy; ///< of this rank's shares; empty if the plan has none
  ExecutionQueue m_queue;
  GradientReducer m_reducer;
  ParameterGatherer m_gatherer;
  GradientNorm m_norm;
  std::vector<TensorShare> m_tensor_shares;
  Index m_turn = 0;
  bool m_busy = false; ///< inside of a function that starts or waits for collectives
};

} // namespace trainstone
