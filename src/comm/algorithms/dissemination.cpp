#include "comm/algorithms/dissemination.hpp"

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

Schedule make_dissemination_barrier(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::dissemination, rank);
  Group const group = Group::all(problem.ranks(), rank);
  for (Rank distance = 1; distance < problem.ranks(); distance *= 2) {
    builder.receive_signal(group[rank - distance]);
    builder.send_signal(group[rank + distance]);
    builder.end_round();
  }
  return builder.finish();
}

} // namespace trainstone
