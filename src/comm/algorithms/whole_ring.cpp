#include "comm/algorithms/whole_ring.hpp"

#include "comm/algorithms/contributions.hpp"

namespace trainstone {

Schedule make_whole_ring_all_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::whole_ring, rank);
  Group const ring = Group::of(problem.topology.ring(), rank);
  std::vector<Slice> contributions(static_cast<std::size_t>(ring.size()), data_slice({0, problem.elements()}));
  auto const contribution_of = [&](Rank member) -> Slice& {
    return contributions[static_cast<std::size_t>(ring[member])];
  };
  for (Rank round = 1; round < ring.size(); ++round) {
    builder.end_round();
    Slice const received = scratch_slice(builder.new_scratch(problem.elements()));
    contribution_of(ring.me() - round) = received;
    builder.receive(ring[ring.me() - 1], received);
    builder.send(ring[ring.me() + 1], contribution_of(ring.me() - round + 1));
  }
  append_sum_in_order(builder, contributions, static_cast<std::size_t>(rank));
  return builder.finish();
}

} // namespace trainstone
