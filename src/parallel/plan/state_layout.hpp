#pragma once

// Who holds what: which part of parameters, gradients and optimizer state each rank keeps, in which types, and which
// micro-batches it runs. A plain value, as one rank sees it. Knows nothing of the collectives that move the parts.
// Source: ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, arXiv:1910.02054; PyTorch FSDP:
// Experiences on Scaling Fully Sharded Data Parallel, arXiv:2304.11277.

#include "comm/schedule/topology.hpp"
#include "model/parameter_table.hpp"
#include "parallel/plan/mesh.hpp"
#include "parallel/plan/ownership.hpp"
#include "parallel/plan/recipe.hpp"

#include <vector>

namespace trainstone {

/// The parts of the training state that lie with their owner alone (ownership.hpp) instead of whole on each rank of the
/// shard axis. Optimizer state always lies with its owner. If nothing is sharded, the axis has length 1.
struct Sharding {
  bool parameters = false;
  bool gradients = false;
};

struct StateLayout {
  Mesh mesh;
  Topology topology = Topology::one_node(1); ///< of all ranks
  Rank rank = 0;
  std::vector<ParameterGroup> groups;
  std::vector<ParameterUnit> units;
  Index model_sections = 0; ///< of the whole model
  Ownership ownership;      ///< among the ranks of a shard group
  Sharding sharding;
  StateTypes types;
  Index moments = 2;            ///< vectors that the optimizer keeps
  Index rank_micro_batches = 1; ///< that each rank runs in a step
  bool main_device = false;     ///< rank 0 reads the data of all ranks

  Rank member() const { return mesh.index(Axis::shard, rank); }
  /// Whether this rank is a dedicated server: then all that it keeps are its shares.
  bool serves() const { return mesh.serves(rank); }
  bool keeps_shares_of_parameters() const { return sharding.parameters || serves(); }
  bool keeps_shares_of_gradients() const { return sharding.gradients || serves(); }
  /// The topology of this rank's line.
  Topology line(Axis axis) const { return topology.of(mesh.members(axis, rank)); }

  Index sections() const; ///< of this rank's groups
  Index elements() const { return groups.back().offset + groups.back().padded; }
  Index largest_unit() const;
  /// The group that is the token table. \throws Error if this stage has no token table
  Index table_group() const;
  /// The unit that a group is in.
  Index unit_of(Index group) const;
  /// Elements of all of this rank's shares, and of the parameters that it keeps.
  Index share_elements() const { return ownership.elements(member()); }
  Index parameter_elements() const { return keeps_shares_of_parameters() ? share_elements() : elements(); }

  /// Whether this stage counts a group where every parameter counts once: in the norm, hashes, checkpoints. The last
  /// stage of a pipeline has a second copy of the token table, and does not count it.
  bool counts(Index group) const {
    return mesh.pipeline == 1 || mesh.index(Axis::pipeline, rank) == 0 ||
           groups[static_cast<std::size_t>(group)].number != token_table_group;
  }

  /// The same of a section of a group, and of a tensor. What no slice cuts is on all ranks that share slices, of which
  /// the first one counts it. So it is with the features.
  bool counts(Index group, ParameterSection const& section) const {
    return counts(group) && counts_cut(section.is_of_slice(), Axis::tensor) &&
           counts_cut(section.is_of_part(), Axis::features);
  }
  bool counts(Index group, ParameterTensor const& tensor) const {
    return counts(group) && counts_cut(tensor.split.cuts(), Axis::tensor) &&
           counts_cut(tensor.features.cuts(), Axis::features);
  }
  /// Whether this rank counts, on an axis of ranks that share layers, what these ranks have a part of each, or all.
  bool counts_cut(bool is_cut, Axis axis) const { return is_cut || mesh.index(axis, rank) == 0; }

  /// This rank's share of a group, counted from the group's begin; and where it lies in a vector of all its shares.
  Range share(Index group) const { return ownership.share(group, member()); }
  Index share_offset(Index group) const { return ownership.offset(group, member()); }
  /// Where this rank's share of a group begins, in a vector of its shares alone or of all parameters.
  Index share_begin(Index group, bool shares_alone) const;
  /// Where the norm's block sums of an owner's share of a group begin among all block sums. These are ordered by
  /// member, then by group.
  Index norm_blocks_begin(Index group, Rank owner) const;
  /// Block sums of the largest group, which a rank brings together if several ranks have some of them. Else 0.
  Index collected_norm_blocks() const;

  /// Of a step, over all ranks.
  Index micro_batches() const { return rank_micro_batches * mesh.data(); }
  /// The number, among the micro-batches of all ranks, of a rank's own micro-batch `own`. Ranks that reduce gradients
  /// after every micro-batch run neighbouring ones, so that the sums over ranks and micro-batches are subtrees of one
  /// tree over all micro-batches.
  Index micro_batch(Index own) const { return micro_batch(own, rank); }
  Index micro_batch(Index own, Rank of) const { return micro_batch(own, of, rank_micro_batches); }
  /// Where each rank runs so many.
  Index micro_batch(Index own, Rank of, Index each) const;
};

} // namespace trainstone
