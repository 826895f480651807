#include "comm/algorithms/shared_copy.hpp"

#include "comm/algorithms/shared.hpp"

namespace trainstone {

Schedule make_shared_copy_all_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::shared_copy, rank);
  if (problem.ranks() == 1 || problem.elements() == 0) return builder.finish();
  Slice const own = data_slice(problem.partition.range(rank));
  builder.node_barrier();
  builder.combine({own.buffer, own.range, every_neighbour}, own);
  builder.node_barrier();
  append_shared_copies(builder, problem.partition, rank);
  builder.node_barrier();
  return builder.finish();
}

} // namespace trainstone
