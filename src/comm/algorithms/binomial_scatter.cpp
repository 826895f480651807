#include "comm/algorithms/binomial_scatter.hpp"

#include "comm/algorithms/binomial_blocks.hpp"

#include <ranges>

namespace trainstone {

void append_binomial_scatter(ScheduleBuilder& builder, Group const& group, Rank root, Partition const& blocks) {
  BinomialBlocks const mine(group, root, blocks);
  if (!mine.place().parent) {
    for (BinomialSubtree const& child : mine.children() | std::views::reverse) {
      Slice const outgoing = pack(builder, mine.run(child));
      builder.send(group[root + child.begin], outgoing);
      builder.end_round();
    }
    return;
  }
  Slice const subtree = mine.make_room(builder);
  builder.receive(group[root + *mine.place().parent], subtree);
  builder.end_round();
  if (subtree.buffer == BufferId::scratch) {
    builder.copy(mine.own_part(subtree), data_slice(blocks.range(group.me()))); // while the next message is under way
  }
  // the largest subtree has the longest way to go
  for (BinomialSubtree const& child : mine.children() | std::views::reverse) {
    builder.send(group[root + child.begin], mine.part(subtree, child));
    builder.end_round();
  }
}

Schedule make_binomial_scatter(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::binomial, rank);
  append_binomial_scatter(builder, Group::all(problem.ranks(), rank), problem.root, problem.partition);
  return builder.finish();
}

} // namespace trainstone
