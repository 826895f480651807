#include "comm/algorithms/parameter_server.hpp"

#include "comm/algorithms/contributions.hpp"

namespace trainstone {

namespace {

void append_sends(ScheduleBuilder& builder, Problem const& problem, Rank worker) {
  Rank const workers = problem.workers();
  for (Rank i = 0; i < problem.servers; ++i) {
    Rank const server = workers + (worker + i) % problem.servers; // workers do not all begin with the same one
    builder.send(server, data_slice(problem.partition.range(server)));
  }
}

/// What the workers have of this server's block: the first one's where the sum belongs, the others' in scratch.
std::vector<Slice> append_contributions(ScheduleBuilder& builder, Problem const& problem, Rank server) {
  std::vector<Slice> contributions{data_slice(problem.partition.range(server))};
  for (Rank worker = 1; worker < problem.workers(); ++worker)
    contributions.push_back(scratch_slice(builder.new_scratch(problem.partition.size(server))));
  for (Rank worker = 0; worker < problem.workers(); ++worker)
    builder.receive(worker, contributions[static_cast<std::size_t>(worker)]);
  return contributions;
}

} // namespace

Schedule make_direct_server_push(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::direct, rank);
  if (rank < problem.workers())
    append_sends(builder, problem, rank);
  else
    append_sum_in_order(builder, append_contributions(builder, problem, rank), 0);
  return builder.finish();
}

Schedule make_ordered_server_push(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::ordered, rank);
  if (rank < problem.workers())
    append_sends(builder, problem, rank);
  else
    append_sum_in_tree(builder, append_contributions(builder, problem, rank));
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
