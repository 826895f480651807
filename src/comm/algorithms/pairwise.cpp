#include "comm/algorithms/pairwise.hpp"

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

Schedule make_pairwise_all_to_all(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::pairwise, rank);
  Rank const ranks = problem.ranks();
  Group const group = Group::all(ranks, rank);
  auto const place = [&](Rank peer) { return data_slice(all_to_all_range(problem.partition, rank, peer)); };
  std::vector<Slice> waiting; // what came in round i+1
  for (Rank round = 1; round < ranks; ++round) {
    Rank const target = group[rank + round];
    Rank const source = group[rank - round];
    // this rank's own message for the source leaves in round ranks - round
    bool const place_is_free = round > ranks - round;
    Slice received = place(source);
    if (!place_is_free) {
      received = scratch_slice(builder.new_scratch(received.range.size()));
      waiting.push_back(received);
    }
    builder.receive(source, received);
    builder.send(target, place(target));
    if (ranks - round <= round) builder.copy(waiting[static_cast<std::size_t>(ranks - round) - 1], place(target));
    builder.end_round();
  }
  return builder.finish();
}

} // namespace trainstone
