#include "comm/algorithms/shared.hpp"

namespace trainstone {

namespace {

/// One step between barriers: all data is there before, and nobody touches another rank's any more after it.
template <class Step>
Schedule make_one_step(Problem const& problem, Rank rank, Step const& step) {
  ScheduleBuilder builder(problem, Algorithm::shared, rank);
  if (problem.ranks() == 1 || problem.elements() == 0) return builder.finish();
  builder.node_barrier();
  step(builder);
  builder.node_barrier();
  return builder.finish();
}

} // namespace

void append_shared_copies(ScheduleBuilder& builder, Partition const& blocks, Rank rank) {
  // Each rank begins with its neighbour, so that not all read the same memory at a time.
  for (Rank distance = 1; distance < blocks.ranks(); ++distance) {
    Rank const owner = (rank + distance) % blocks.ranks();
    builder.copy(data_slice(blocks.range(owner), owner), data_slice(blocks.range(owner)));
  }
  builder.end_round();
}

Schedule make_shared_all_reduce(Problem const& problem, Rank rank) {
  Slice const block = data_slice(problem.partition.range(rank), every_neighbour);
  return make_one_step(problem, rank, [&](ScheduleBuilder& builder) { builder.combine(block, block); });
}

Schedule make_shared_reduce_scatter(Problem const& problem, Rank rank) {
  Range const block = problem.partition.range(rank);
  return make_one_step(problem, rank, [&](ScheduleBuilder& builder) {
    builder.combine(data_slice(block, every_neighbour), data_slice(block));
  });
}

Schedule make_shared_reduce(Problem const& problem, Rank rank) {
  Range const share = Partition::even(problem.elements(), problem.ranks()).range(rank);
  Slice const target = data_slice(share, rank == problem.root ? own_memory : problem.root);
  return make_one_step(problem, rank,
                       [&](ScheduleBuilder& builder) { builder.combine(data_slice(share, every_neighbour), target); });
}

Schedule make_shared_all_gather(Problem const& problem, Rank rank) {
  return make_one_step(problem, rank,
                       [&](ScheduleBuilder& builder) { append_shared_copies(builder, problem.partition, rank); });
}

Schedule make_shared_broadcast(Problem const& problem, Rank rank) {
  Range const share = Partition::even(problem.elements(), problem.ranks()).range(rank);
  return make_one_step(problem, rank, [&](ScheduleBuilder& builder) {
    auto const at = [&](Rank owner) { return data_slice(share, owner == rank ? own_memory : owner); };
    for (Rank distance = 0; distance < problem.ranks(); ++distance) {
      Rank const target = (rank + distance) % problem.ranks();
      if (target != problem.root) builder.copy(at(problem.root), at(target));
    }
  });
}

} // namespace trainstone
