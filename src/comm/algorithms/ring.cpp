#include "comm/algorithms/ring.hpp"

#include "core/error.hpp"

namespace trainstone {

namespace {

Ring ring_of_group(Group const& group, Partition const& blocks) {
  TRAINSTONE_REQUIRE(group.size() == blocks.ranks(), "{} blocks for a ring of {}", blocks.ranks(), group.size());
  Ring ring{group, {}};
  ring.blocks.reserve(static_cast<std::size_t>(group.size()));
  for (Rank member = 0; member < group.size(); ++member) ring.blocks.push_back(blocks.range(member));
  return ring;
}

} // namespace

Range Ring::block(Rank steps) const {
  Rank const members = group.size();
  return blocks[static_cast<std::size_t>((group.me() + 2 * members - steps) % members)];
}

Ring ring_of(Problem const& problem, Rank rank) {
  Ring ring{Group::of(problem.topology.ring(), rank), {}};
  ring.blocks.reserve(static_cast<std::size_t>(problem.ranks()));
  for (Rank const member : problem.topology.ring()) ring.blocks.push_back(problem.partition.range(member));
  return ring;
}

void add_ring_reduce_scatter_step(ScheduleBuilder& builder, Ring const& ring, Rank step) {
  Range const sum = ring.block(step + 2);
  Range const received = builder.new_scratch(sum.size());
  builder.receive(ring.left(), scratch_slice(received));
  builder.send(ring.right(), data_slice(ring.block(step + 1)));
  builder.reduce(scratch_slice(received), data_slice(sum));
}

void add_ring_all_gather_step(ScheduleBuilder& builder, Ring const& ring, Rank step) {
  builder.receive(ring.left(), data_slice(ring.block(step + 1)));
  builder.send(ring.right(), data_slice(ring.block(step)));
}

void append_ring_reduce_scatter(ScheduleBuilder& builder, Ring const& ring) {
  for (Rank step = 0; step + 1 < ring.group.size(); ++step) {
    builder.reuse_scratch();
    add_ring_reduce_scatter_step(builder, ring, step);
    builder.end_round();
  }
}

void append_ring_reduce_scatter(ScheduleBuilder& builder, Group const& group, Partition const& blocks) {
  append_ring_reduce_scatter(builder, ring_of_group(group, blocks));
}

void append_ring_all_gather(ScheduleBuilder& builder, Ring const& ring) {
  for (Rank step = 0; step + 1 < ring.group.size(); ++step) {
    add_ring_all_gather_step(builder, ring, step);
    builder.end_round();
  }
}

void append_ring_all_gather(ScheduleBuilder& builder, Group const& group, Partition const& blocks) {
  append_ring_all_gather(builder, ring_of_group(group, blocks));
}

Schedule make_ring_reduce_scatter(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::ring, rank);
  append_ring_reduce_scatter(builder, ring_of(problem, rank));
  return builder.finish();
}

Schedule make_ring_all_gather(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::ring, rank);
  append_ring_all_gather(builder, ring_of(problem, rank));
  return builder.finish();
}

Schedule make_ring_all_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::ring, rank);
  Ring const ring = ring_of(problem, rank);
  append_ring_reduce_scatter(builder, ring);
  append_ring_all_gather(builder, ring);
  return builder.finish();
}

} // namespace trainstone
