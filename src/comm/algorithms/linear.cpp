#include "comm/algorithms/linear.hpp"

#include "comm/schedule_builder.hpp"

namespace trainstone {

Schedule make_linear_gather(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::linear, rank);
  if (rank != problem.root) {
    builder.send(problem.root, data_slice(problem.partition.range(rank)));
    return builder.finish();
  }
  for (Rank source = 0; source < problem.ranks(); ++source) {
    if (source != rank) builder.receive(source, data_slice(problem.partition.range(source)));
  }
  return builder.finish();
}

Schedule make_linear_scatter(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::linear, rank);
  if (rank != problem.root) {
    builder.receive(problem.root, data_slice(problem.partition.range(rank)));
    return builder.finish();
  }
  for (Rank target = 0; target < problem.ranks(); ++target) {
    if (target != rank) builder.send(target, data_slice(problem.partition.range(target)));
  }
  return builder.finish();
}

} // namespace trainstone
