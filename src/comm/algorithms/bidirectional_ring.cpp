#include "comm/algorithms/bidirectional_ring.hpp"

#include "comm/algorithms/ring.hpp"

namespace trainstone {

namespace {

/// The same members in the opposite order, the block of each going with it.
Ring reversed(Ring const& ring) {
  std::vector<Rank> members;
  for (Rank member = ring.group.size(); member > 0; --member) members.push_back(ring.group[member - 1]);
  Rank const me = ring.group[ring.group.me()];
  return {Group::of(std::move(members), me), {ring.blocks.rbegin(), ring.blocks.rend()}};
}

/// First or second half of every block; of an odd number of elements the first one has one more.
void keep_half(Ring& ring, Rank half) {
  for (Range& block : ring.blocks) block = Partition::even(block, 2).range(half);
}

} // namespace

Schedule make_bidirectional_ring_all_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::bidirectional_ring, rank);
  Ring to_the_right = ring_of(problem, rank);
  Ring to_the_left = reversed(to_the_right);
  keep_half(to_the_right, 0);
  keep_half(to_the_left, 1);
  // Of two ranks each is the other's neighbour on both sides: messages match because the ring to the right comes first.
  for (Rank step = 0; step + 1 < problem.ranks(); ++step) {
    builder.reuse_scratch();
    add_ring_reduce_scatter_step(builder, to_the_right, step);
    add_ring_reduce_scatter_step(builder, to_the_left, step);
    builder.end_round();
  }
  for (Rank step = 0; step + 1 < problem.ranks(); ++step) {
    add_ring_all_gather_step(builder, to_the_right, step);
    add_ring_all_gather_step(builder, to_the_left, step);
    builder.end_round();
  }
  return builder.finish();
}

} // namespace trainstone
