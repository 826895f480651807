#include "comm/algorithms/shared_push.hpp"

namespace trainstone {

namespace {

/// Between two barriers: neighbours' memory may be written, and all of it is written.
Schedule make_pushes(Problem const& problem, Rank rank, Range const& given) {
  ScheduleBuilder builder(problem, Algorithm::shared_push, rank);
  if (problem.ranks() == 1 || problem.elements() == 0) return builder.finish();
  builder.node_barrier();
  // Each rank begins with its neighbour, so that not all write the same memory at a time.
  for (Rank distance = 1; distance < problem.ranks(); ++distance)
    builder.push(data_slice(given), data_slice(given, (rank + distance) % problem.ranks()));
  builder.node_barrier();
  return builder.finish();
}

} // namespace

Schedule make_shared_push_all_gather(Problem const& problem, Rank rank) {
  return make_pushes(problem, rank, problem.partition.range(rank));
}

Schedule make_shared_push_broadcast(Problem const& problem, Rank rank) {
  return make_pushes(problem, rank, {0, rank == problem.root ? problem.elements() : 0});
}

} // namespace trainstone
