#include "comm/algorithms/binomial_gather.hpp"

#include "comm/algorithms/binomial_blocks.hpp"

namespace trainstone {

void append_binomial_gather(ScheduleBuilder& builder, Group const& group, Rank root, Partition const& blocks) {
  BinomialBlocks const mine(group, root, blocks);
  if (!mine.place().parent) {
    for (BinomialSubtree const& child : mine.children()) {
      Slice const landed = landing_place(builder, mine.run(child));
      builder.receive(group[root + child.begin], landed);
      unpack(builder, landed, mine.run(child));
      builder.end_round();
    }
    return;
  }
  Slice const subtree = mine.make_room(builder);
  if (subtree.buffer == BufferId::scratch) {
    builder.copy(data_slice(blocks.range(group.me())), mine.own_part(subtree)); // while the first message is under way
  }
  for (BinomialSubtree const& child : mine.children()) {
    builder.receive(group[root + child.begin], mine.part(subtree, child));
    builder.end_round();
  }
  builder.send(group[root + *mine.place().parent], subtree);
  builder.end_round();
}

Schedule make_binomial_gather(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::binomial, rank);
  append_binomial_gather(builder, Group::all(problem.ranks(), rank), problem.root, problem.partition);
  return builder.finish();
}

} // namespace trainstone
