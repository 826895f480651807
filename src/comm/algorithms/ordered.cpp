#include "comm/algorithms/ordered.hpp"

#include "comm/algorithms/direct.hpp"

namespace trainstone {

Schedule make_ordered_all_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::ordered, rank);
  Rank const ranks = problem.ranks();
  if (ranks == 1) return builder.finish();
  Group const all = Group::all(ranks, rank);
  Range const own = problem.partition.range(rank);
  Range const parts = builder.new_scratch(ranks * own.size());
  auto const part = [&](Rank of) {
    return scratch_slice({parts.begin + of * own.size(), parts.begin + (of + 1) * own.size()});
  };
  builder.copy(data_slice(own), part(rank)); // while the messages are under way
  for (Rank distance = 1; distance < ranks; ++distance) {
    Rank const peer = all[rank - distance];
    builder.receive(peer, part(peer));
  }
  for (Rank distance = 1; distance < ranks; ++distance) {
    Rank const peer = all[rank + distance];
    builder.send(peer, data_slice(problem.partition.range(peer)));
  }
  builder.combine(scratch_slice(parts), data_slice(own));
  builder.end_round();
  append_direct_all_gather(builder, all, problem.partition);
  return builder.finish();
}

} // namespace trainstone
