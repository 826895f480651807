#pragma once

// Algorithms on a ring: every message goes to the right-hand neighbour, or, on the second ring of the bidirectional
// all-reduce, to the left-hand one. Owns the ring, its reduce-scatter and all-gather as building blocks, and the
// collectives made of them. Any number of ranks, any blocks; optimal volume, N-1 rounds per half.
// On several nodes the collectives run along Topology::ring(), which crosses each node border once.
// Source: Bandwidth optimal all-reduce algorithms for clusters of workstations, J. Parallel Distrib. Comput. 69(2),
// 2009.

#include "comm/schedule/schedule_builder.hpp"

#include <vector>

namespace trainstone {

/// The order of members and their blocks: the right-hand neighbour of member i is member i+1, and blocks[i] belongs to
/// member i.
struct Ring {
  Group group;
  std::vector<Range> blocks;

  /// The block that lies `steps` to the left of this rank's own.
  Range block(Rank steps) const;
  Rank left() const { return group[group.me() - 1]; }
  Rank right() const { return group[group.me() + 1]; }
};

/// All ranks of the problem along its topology's ring, each with its own block.
Ring ring_of(Problem const& problem, Rank rank);

/// The moves of step 0 ... n-2 of a reduce-scatter among n members, into the open round: a contribution arrives in new
/// scratch and is added to data. Block b is summed in the order of members b+1, b+2, ..., b.
void add_ring_reduce_scatter_step(ScheduleBuilder& builder, Ring const& ring, Rank step);
/// The moves of step 0 ... n-2 of an all-gather, into the open round.
void add_ring_all_gather_step(ScheduleBuilder& builder, Ring const& ring, Rank step);

/// n-1 rounds that leave the sum of block i at member i. Uses scratch (the largest block but one's own).
void append_ring_reduce_scatter(ScheduleBuilder& builder, Ring const& ring);
void append_ring_reduce_scatter(ScheduleBuilder& builder, Group const& group, Partition const& blocks);
/// n-1 rounds that take block i from member i to all.
void append_ring_all_gather(ScheduleBuilder& builder, Ring const& ring);
void append_ring_all_gather(ScheduleBuilder& builder, Group const& group, Partition const& blocks);

Schedule make_ring_reduce_scatter(Problem const& problem, Rank rank);
Schedule make_ring_all_gather(Problem const& problem, Rank rank);
Schedule make_ring_all_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
