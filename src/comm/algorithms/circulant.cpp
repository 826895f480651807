#include "comm/algorithms/circulant.hpp"

#include "comm/algorithms/blocks.hpp"
#include "core/error.hpp"

#include <algorithm>

namespace trainstone {

std::vector<Rank> halved_skips(Rank members) {
  std::vector<Rank> skips{members};
  while (skips.back() > 1) skips.push_back((skips.back() + 1) / 2);
  std::ranges::reverse(skips);
  return skips;
}

void append_circulant_reduce_scatter(ScheduleBuilder& builder, Group const& group, Partition const& blocks) {
  TRAINSTONE_REQUIRE(group.size() == blocks.ranks(), "{} blocks for {} members", blocks.ranks(), group.size());
  std::vector<Rank> const skips = halved_skips(group.size());
  // Before a round with skip s each member holds partial sums of the t blocks from its own on, after it of s blocks:
  // it hands on the others, and the member s before it does so, too.
  for (std::size_t i = skips.size() - 1; i > 0; --i) {
    Rank const skip = skips[i - 1];
    Rank const handed_on = skips[i] - skip;
    Run const kept = run_of_blocks(blocks, group.me(), handed_on);
    builder.reuse_scratch();
    Slice const outgoing = pack(builder, run_of_blocks(blocks, group.me() + skip, handed_on));
    Range const received = builder.new_scratch(kept.size());
    builder.receive(group[group.me() - skip], scratch_slice(received));
    builder.send(group[group.me() + skip], outgoing);
    reduce_run(builder, received, kept);
    builder.end_round();
  }
}

void append_circulant_all_gather(ScheduleBuilder& builder, Group const& group, Partition const& blocks,
                                 std::vector<Rank> const& skips) {
  TRAINSTONE_REQUIRE(group.size() == blocks.ranks(), "{} blocks for {} members", blocks.ranks(), group.size());
  // Before a round with skip s each member holds the s blocks from its own on.
  for (std::size_t i = 0; i + 1 < skips.size(); ++i) {
    Rank const skip = skips[i];
    Rank const gained = skips[i + 1] - skip;
    Run const incoming = run_of_blocks(blocks, group.me() + skip, gained);
    builder.reuse_scratch();
    Slice const outgoing = pack(builder, run_of_blocks(blocks, group.me(), gained));
    Slice const landed = landing_place(builder, incoming);
    builder.receive(group[group.me() + skip], landed);
    builder.send(group[group.me() - skip], outgoing);
    unpack(builder, landed, incoming);
    builder.end_round();
  }
}

void append_circulant_all_gather(ScheduleBuilder& builder, Group const& group, Partition const& blocks) {
  append_circulant_all_gather(builder, group, blocks, halved_skips(group.size()));
}

Schedule make_circulant_reduce_scatter(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::circulant, rank);
  append_circulant_reduce_scatter(builder, Group::all(problem.ranks(), rank), problem.partition);
  return builder.finish();
}

Schedule make_circulant_all_gather(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::circulant, rank);
  append_circulant_all_gather(builder, Group::all(problem.ranks(), rank), problem.partition);
  return builder.finish();
}

Schedule make_circulant_all_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::circulant, rank);
  Group const all = Group::all(problem.ranks(), rank);
  append_circulant_reduce_scatter(builder, all, problem.partition);
  append_circulant_all_gather(builder, all, problem.partition);
  return builder.finish();
}

} // namespace trainstone
