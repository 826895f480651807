#include "comm/algorithms/main_device.hpp"

#include "comm/algorithms/contributions.hpp"

namespace trainstone {

Schedule make_main_device_all_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::main_device, rank);
  Slice const data = data_slice({0, problem.elements()});
  if (rank != 0) {
    builder.send(0, data);
    builder.end_round();
    builder.receive(0, data);
    return builder.finish();
  }
  std::vector<Slice> contributions{data};
  for (Rank source = 1; source < problem.ranks(); ++source) {
    contributions.push_back(scratch_slice(builder.new_scratch(problem.elements())));
    builder.receive(source, contributions.back());
  }
  append_sum_in_order(builder, contributions, 0);
  builder.end_round();
  for (Rank target = 1; target < problem.ranks(); ++target) builder.send(target, data);
  return builder.finish();
}

} // namespace trainstone
