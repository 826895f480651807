#pragma once

// Gathers whole units of parameters, if ranks hold shares of each group or if each unit lies with one rank. Owns the
// slots of gathered units (stage 3; in other stages every rank has room for all units) and knows which units were
// published since the last update. Does not decide when: the step program does.

#include "comm/execution/execution_queue.hpp"
#include "parallel/engine/mesh_communicators.hpp"
#include "parallel/engine/parameter_shares.hpp"
#include "parallel/engine/state_memory.hpp"
#include "parallel/plan/gather_plan.hpp"
#include "parallel/plan/state_layout.hpp"

#include <span>
#include <vector>

namespace trainstone {

class ParameterGatherer {
public:
  /// \param[in] parameters  all, or this rank's shares, if parameters are sharded
  /// \param[in] slots       of gathers.slots times the largest unit; else null
  /// \param[in] scratch, staging  one per gather in flight: gathers.in_flight()
  /// \param[in] exec, communication  of the kernels that use parameters, and of the gathers
  /// Everything referred to must outlive the object. Collective.
  ParameterGatherer(ExecutionSpace const& exec, ExecutionSpace const& communication, MeshCommunicators& communicators,
                    ExecutionQueue& queue, GatherPlan const& gathers, StateLayout const& layout,
                    ParameterShares& parameters, StateMemory* slots, std::vector<StoredVector> const& scratch,
                    std::vector<std::span<std::byte>> const& staging);

  /// Starts to gather a unit into a slot, if parameters are sharded. Shares that lie in a file were fetched.
  void gather(Index unit, Index slot);
  /// Afterwards the unit in the slot is complete for work enqueued on exec.
  void wait_gathered(Index unit, Index slot) { wait(unit, slot); }

  /// The owners' shares have changed: what was published is old. Nothing may be on its way.
  void outdate();
  /// The same of one unit.
  void outdate(Index unit);
  /// Starts to bring a unit's shares to all ranks, unless they are there or on their way. By priority, a server sends
  /// one unit after the other. \param[in] slot  of scratch
  void publish(Index unit, Index slot);
  /// Waits until a unit is published. Afterwards it is complete for work enqueued on exec.
  void wait_published(Index unit);
  /// Publishes what is old, and waits.
  void finish();

  /// Room for a whole unit, if parameters are sharded; else the unit itself.
  StoredVector whole(Index unit, Index slot = 0) const;
  /// A group's place in its unit's.
  StoredVector whole_group(Index group, Index slot = 0) const;

private:
  enum class Publication { old, under_way, complete };
  struct Published {
    Publication state = Publication::complete;
    Index slot = 0; ///< of scratch, while it is under way
  };

  /// All that gather a unit in this slot of scratch.
  std::span<Execution> executions(Index unit, Index slot);
  void wait(Index unit, Index slot);

  ExecutionSpace m_exec;
  ExecutionQueue* m_queue;
  GatherPlan const* m_plan;
  StateLayout const* m_layout;
  ParameterShares* m_parameters;
  StateMemory* m_slots;
  std::vector<Execution> m_gathers;   ///< of every unit, for every slot of scratch, or for its own; empty on one rank
  std::vector<std::size_t> m_first;   ///< by unit: of these
  std::vector<Published> m_published; ///< by unit
};

} // namespace trainstone
