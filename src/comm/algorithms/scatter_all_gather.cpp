#include "comm/algorithms/scatter_all_gather.hpp"

#include "comm/algorithms/binomial_scatter.hpp"
#include "comm/algorithms/ring.hpp"

namespace trainstone {

Schedule make_scatter_all_gather_broadcast(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::scatter_all_gather, rank);
  append_binomial_scatter(builder, Group::all(problem.ranks(), rank), problem.root, problem.partition);
  append_ring_all_gather(builder, ring_of(problem, rank));
  return builder.finish();
}

} // namespace trainstone
