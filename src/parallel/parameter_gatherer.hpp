#pragma once

// Brings whole parameter groups together where ranks hold shares of them, or one rank each of them. Owns the slots that
// gathered groups lie in (stage 3; before that every rank has room for all), and how far ahead of their use gathers are
// started. Promises: all ranks start the same gathers in the same order; a slot is filled anew only when its group is
// not used any more.

#include "comm/execution/execution_queue.hpp"
#include "parallel/mesh_communicators.hpp"
#include "parallel/shard_plan.hpp"
#include "parallel/state_memory.hpp"
#include "parallel/step_order.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace trainstone {

class ParameterGatherer {
public:
  /// \param[in] parameters  all (plan.elements()), or this rank's shares, if parameters are sharded
  /// \param[in] slots       of plan.gather_slots() times the largest group; else null
  /// \param[in] scratch, staging  one per gather in flight: plan.prefetch + 1
  /// \param[in] exec, communication  of the kernels that use parameters, and of the gathers
  /// Everything referred to must outlive the object. Collective.
  ParameterGatherer(ExecutionSpace const& exec, ExecutionSpace const& communication, MeshCommunicators& communicators,
                    ExecutionQueue& queue, ShardPlan const& plan, StateMemory& parameters, StateMemory* slots,
                    std::vector<StoredVector> const& scratch, std::vector<std::span<std::byte>> const& staging);

  /// The groups that are used next, in this order: the use of one ends when the next one is acquired. The gathers of
  /// the last sequence must have been acquired or finished.
  void begin(std::vector<Index> sequence);
  /// The whole group at a place of the sequence; starts the gathers ahead of it. Complete for work enqueued on exec.
  ConstStoredVector acquire(std::size_t place);
  /// Acquires what is left.
  void finish();
  /// Whether every group of the sequence was acquired.
  bool is_finished() const { return m_order.is_finished(); }

  /// This rank's share of a group.
  StoredVector share(Index group) const;
  /// Room for a whole group, if parameters are sharded; else the group itself.
  StoredVector whole(Index group, std::size_t slot = 0) const;

private:
  void carry_out(std::vector<GatherAction> const& actions);

  ExecutionSpace m_exec;
  ExecutionQueue* m_queue;
  ShardPlan const* m_plan;
  StateMemory* m_parameters;
  StateMemory* m_slots;
  std::size_t m_slots_in_turn;
  std::vector<Execution> m_gathers; ///< of every group, for every slot
  GatherOrder m_order;
};

} // namespace trainstone
