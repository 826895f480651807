#pragma once

// The norm of the summed gradient, of which every rank holds a share. Owns the collective that brings the squared sums
// of all blocks together. Promises: the same bits on all ranks, for every strategy and number of ranks: blocks of 256
// elements, the balanced binary tree over a section's blocks, then sections in order; every parameter counts once. A
// section begins with a block, and a share is whole blocks: the norm needs to know who owns a block, and not which
// tensor is in it, so it does not go over runs (model/parameter_runs.hpp). Padding is zero and adds nothing.

#include "comm/execution/buffers.hpp"
#include "comm/execution/execution.hpp"
#include "kernels/norm_tree.hpp"
#include "parallel/engine/mesh_communicators.hpp"
#include "parallel/plan/planned_collective.hpp"
#include "parallel/plan/state_layout.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace trainstone {

class GradientNorm {
public:
  /// Takes its part of engine_buffers() from `buffers`. \param[in] gather  of the squared sums, if shares are apart
  /// \param[in] staging  pinned memory of the gather's messages
  /// Collective; everything referred to must outlive the object.
  GradientNorm(ExecutionSpace const& exec, MeshCommunicators& communicators, StateLayout const& layout,
               std::optional<PlannedCollective> const& gather, Arena& buffers, std::span<std::byte> staging);

  /// \param[in] share  this rank's share of a group's gradient
  /// Collective. Waits.
  double operator()(std::function<StoredVector(Index group)> const& share);

private:
  void append_sections(std::vector<TreeSection>& all, Index group, Index blocks) const;
  void add_up_sections();
  void collect_and_add_up_sections();
  std::vector<double> sums_of_model(std::vector<double> const& of_sections) const;

  ExecutionSpace m_exec;
  StateLayout const* m_layout;
  std::vector<Communicator*> m_sharers; ///< of the model: tensor ranks, stages; none: this rank has all of it
  Vector<double> m_block_sums;          ///< of all groups; by member of the shard group, then by group
  Vector<double> m_blocks_of_group, m_section_sums;
  std::optional<Execution> m_gather;
};

} // namespace trainstone
