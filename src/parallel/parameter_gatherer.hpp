#pragma once

// Gathers whole parameter groups, if ranks hold shares of each group or if each group lies with one rank. Owns the
// slots of gathered groups (stage 3; in other stages every rank has room for all groups). Decides how far ahead of
// their use gathers start. Promises: all ranks start the same gathers in the same order; a slot is filled anew only
// when its group is not used any more.

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

  /// Begins a sequence of groups that are used in this order. The use of a group ends when the next group is acquired.
  /// The gathers of the last sequence must have been acquired or finished.
  void begin(std::vector<Index> sequence);
  /// The whole group at a place of the sequence; starts the gathers ahead of it. Complete for work enqueued on exec.
  ConstStoredVector acquire(std::size_t place);
  /// Acquires the groups that are left.
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
