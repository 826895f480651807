#pragma once

// The norm of the summed gradient, of which every rank holds a share. Owns the collective that brings the squared sums
// of all blocks together. Promises: the same bits on all ranks, for every strategy and number of ranks: blocks of 256
// elements, the balanced binary tree over a group's blocks, then groups in order; every parameter counts once. Blocks
// are those of a padded group, and a share is whole blocks: the norm needs to know who owns a block, and not which
// tensor is in it, so it does not go over runs (model/parameter_runs.hpp). Padding is zero and adds nothing.

#include "comm/execution/buffers.hpp"
#include "comm/execution/execution.hpp"
#include "parallel/engine/mesh_communicators.hpp"
#include "parallel/plan/shard_plan.hpp"

#include <functional>
#include <optional>

namespace trainstone {

class GradientNorm {
public:
  /// Takes its part of plan.buffers() from `buffers`, of plan.pinned_buffers() from `pinned`. Collective; everything
  /// referred to must outlive the object.
  GradientNorm(ExecutionSpace const& exec, MeshCommunicators& communicators, ShardPlan const& plan, Arena& buffers,
               PinnedMemory& pinned);

  /// \param[in] share  this rank's share of a group's gradient
  /// Collective. Waits.
  double operator()(std::function<StoredVector(Index group)> const& share);

private:
  ExecutionSpace m_exec;
  ShardPlan const* m_plan;
  Vector<double> m_block_sums; ///< of all groups; by member of the shard group, then by group
  Vector<double> m_blocks_of_group, m_group_sums;
  std::optional<Execution> m_gather;
};

} // namespace trainstone
