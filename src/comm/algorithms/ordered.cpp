#include "comm/algorithms/ordered.hpp"

#include "comm/algorithms/direct.hpp"

namespace trainstone {

namespace {

/// All ranks' contributions to a range of data, side by side in scratch: by ascending rank.
Slice append_contributions(ScheduleBuilder& builder, Group const& all, Range const& own) {
  Range const parts = builder.new_scratch(all.size() * own.size());
  auto const part = [&](Rank of) {
    return scratch_slice({parts.begin + of * own.size(), parts.begin + (of + 1) * own.size()});
  };
  builder.copy(data_slice(own), part(all.me())); // while the messages are under way
  for (Rank distance = 1; distance < all.size(); ++distance) {
    Rank const peer = all[all.me() - distance];
    builder.receive(peer, part(peer));
  }
  return scratch_slice(parts);
}

void append_ordered_reduce_scatter(ScheduleBuilder& builder, Group const& all, Partition const& blocks) {
  Range const own = blocks.range(all.me());
  Slice const parts = append_contributions(builder, all, own);
  for (Rank distance = 1; distance < all.size(); ++distance) {
    Rank const peer = all[all.me() + distance];
    builder.send(peer, data_slice(blocks.range(peer)));
  }
  builder.combine(parts, data_slice(own));
  builder.end_round();
}

} // namespace

Schedule make_ordered_reduce_scatter(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::ordered, rank);
  if (problem.ranks() > 1) append_ordered_reduce_scatter(builder, Group::all(problem.ranks(), rank), problem.partition);
  return builder.finish();
}

Schedule make_ordered_all_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::ordered, rank);
  if (problem.ranks() == 1) return builder.finish();
  Group const all = Group::all(problem.ranks(), rank);
  append_ordered_reduce_scatter(builder, all, problem.partition);
  append_direct_all_gather(builder, all, problem.partition);
  return builder.finish();
}

Schedule make_ordered_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::ordered, rank);
  Range const data{0, problem.elements()};
  if (problem.ranks() == 1) return builder.finish();
  if (rank == problem.root) {
    builder.combine(append_contributions(builder, Group::all(problem.ranks(), rank), data), data_slice(data));
  } else {
    builder.send(problem.root, data_slice(data));
  }
  return builder.finish();
}

} // namespace trainstone
