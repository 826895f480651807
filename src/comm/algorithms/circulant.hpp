#pragma once

// Algorithms on a circulant graph: in every round each rank talks to the ranks a certain skip away. Owns the
// reduce-scatter and all-gather building blocks, for any list of skips, and the collectives made of them with halved
// skips. Any number of ranks, any partition; ceil(lg N) rounds per half and exactly N-1 blocks, without folding. Runs
// of blocks that reach beyond the last one are packed in scratch (blocks.hpp).
// Source: Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms, arXiv:2410.14234.

#include "comm/schedule/schedule_builder.hpp"

#include <vector>

namespace trainstone {

/// The number of blocks that each member holds before each round of an all-gather and after the last round: from 1 to
/// n, at most doubling. The numbers are n halved again and again, rounded up, in ascending order.
std::vector<Rank> halved_skips(Rank members);

/// ceil(lg n) rounds that leave the sum of block i at member i.
void append_circulant_reduce_scatter(ScheduleBuilder& builder, Group const& group, Partition const& blocks);
/// skips.size() - 1 rounds that take block i from member i to all. \param[in] skips as halved_skips describes
void append_circulant_all_gather(ScheduleBuilder& builder, Group const& group, Partition const& blocks,
                                 std::vector<Rank> const& skips);
void append_circulant_all_gather(ScheduleBuilder& builder, Group const& group, Partition const& blocks);

Schedule make_circulant_reduce_scatter(Problem const& problem, Rank rank);
Schedule make_circulant_all_gather(Problem const& problem, Rank rank);
Schedule make_circulant_all_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
