#include "comm/algorithms/bruck.hpp"

#include "comm/algorithms/circulant.hpp"

#include <algorithm>

namespace trainstone {

Schedule make_bruck_all_gather(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::bruck, rank);
  std::vector<Rank> skips{1};
  while (skips.back() < problem.ranks()) skips.push_back(std::min(2 * skips.back(), problem.ranks()));
  append_circulant_all_gather(builder, Group::all(problem.ranks(), rank), problem.partition, skips);
  return builder.finish();
}

} // namespace trainstone
