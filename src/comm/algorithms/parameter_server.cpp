#include "comm/algorithms/parameter_server.hpp"

#include "comm/algorithms/contributions.hpp"

namespace trainstone {

Schedule make_direct_server_push(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::direct, rank);
  Rank const workers = problem.workers();
  if (rank < workers) {
    for (Rank i = 0; i < problem.servers; ++i) {
      Rank const server = workers + (rank + i) % problem.servers; // workers do not all begin with the same one
      builder.send(server, data_slice(problem.partition.range(server)));
    }
    return builder.finish();
  }
  std::vector<Slice> contributions{data_slice(problem.partition.range(rank))};
  for (Rank worker = 1; worker < workers; ++worker) {
    contributions.push_back(scratch_slice(builder.new_scratch(problem.partition.size(rank))));
  }
  for (Rank worker = 0; worker < workers; ++worker) {
    builder.receive(worker, contributions[static_cast<std::size_t>(worker)]);
  }
  append_sum_in_order(builder, contributions, 0);
  return builder.finish();
}

Schedule make_direct_server_pull(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::direct, rank);
  Rank const workers = problem.workers();
  if (rank >= workers) {
    for (Rank i = 0; i < workers; ++i) {
      // servers start with different workers, too
      builder.send((rank + i) % workers, data_slice(problem.partition.range(rank)));
    }
    return builder.finish();
  }
  for (Rank server = workers; server < problem.ranks(); ++server) {
    builder.receive(server, data_slice(problem.partition.range(server)));
  }
  return builder.finish();
}

} // namespace trainstone
