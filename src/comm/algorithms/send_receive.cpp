#include "comm/algorithms/send_receive.hpp"

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

Schedule make_direct_send_receive(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::direct, rank);
  Rank const source = problem.source_of(rank);
  Slice const sent = data_slice(sent_half(problem)), received = data_slice(received_half(problem));
  if (source == rank) {
    builder.copy(sent, received);
  } else {
    builder.receive(source, received);
    builder.send(problem.destination_of(rank), sent);
  }
  return builder.finish();
}

Schedule make_shared_copy_send_receive(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::shared_copy, rank);
  Range const sent = sent_half(problem);
  if (sent.empty()) return builder.finish();
  Rank const source = problem.source_of(rank);
  Slice const received = data_slice(received_half(problem));
  if (problem.reach() == 0) {
    builder.copy(data_slice(sent), received);
    return builder.finish();
  }
  builder.node_barrier();
  builder.copy({BufferId::data, sent, source}, received);
  builder.node_barrier();
  return builder.finish();
}

Schedule make_direct_send(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::direct, rank);
  Rank const root = problem.root, destination = problem.destination_of(root);
  Slice const all = data_slice({0, problem.elements()});
  if (destination == root) return builder.finish();
  if (rank == root) builder.send(destination, all);
  if (rank == destination) builder.receive(root, all);
  return builder.finish();
}

Schedule make_direct_signal_wait(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::direct, rank);
  if (problem.reach() == 0) return builder.finish();
  builder.receive_signal(problem.source_of(rank));
  builder.send_signal(problem.destination_of(rank));
  return builder.finish();
}

Schedule make_shared_signal_wait(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::shared, rank);
  if (problem.reach() > 0) builder.node_barrier();
  return builder.finish();
}

} // namespace trainstone
