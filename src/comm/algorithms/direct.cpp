#include "comm/algorithms/direct.hpp"

#include "core/error.hpp"

#include <vector>

namespace trainstone {

namespace {

Range block_of(Group const& group, Partition const& blocks, Rank member) {
  return blocks.range((member + group.size()) % group.size());
}

} // namespace

// Each member begins with its neighbours, so that not all talk to the same one at a time.

void append_direct_reduce_scatter(ScheduleBuilder& builder, Group const& group, Partition const& blocks) {
  TRAINSTONE_REQUIRE(group.size() == blocks.ranks(), "{} blocks for {} members", blocks.ranks(), group.size());
  Range const own = blocks.range(group.me());
  builder.reuse_scratch();
  std::vector<Range> received;
  for (Rank distance = 1; distance < group.size(); ++distance) {
    received.push_back(builder.new_scratch(own.size()));
    builder.receive(group[group.me() - distance], scratch_slice(received.back()));
  }
  for (Rank distance = 1; distance < group.size(); ++distance) {
    builder.send(group[group.me() + distance], data_slice(block_of(group, blocks, group.me() + distance)));
  }
  for (Range const& contribution : received) builder.reduce(scratch_slice(contribution), data_slice(own));
  builder.end_round();
}

void append_direct_all_gather(ScheduleBuilder& builder, Group const& group, Partition const& blocks) {
  TRAINSTONE_REQUIRE(group.size() == blocks.ranks(), "{} blocks for {} members", blocks.ranks(), group.size());
  for (Rank distance = 1; distance < group.size(); ++distance) {
    builder.receive(group[group.me() - distance], data_slice(block_of(group, blocks, group.me() - distance)));
  }
  for (Rank distance = 1; distance < group.size(); ++distance) {
    builder.send(group[group.me() + distance], data_slice(blocks.range(group.me())));
  }
  builder.end_round();
}

Schedule make_direct_reduce_scatter(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::direct, rank);
  append_direct_reduce_scatter(builder, Group::all(problem.ranks(), rank), problem.partition);
  return builder.finish();
}

Schedule make_direct_all_gather(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::direct, rank);
  append_direct_all_gather(builder, Group::all(problem.ranks(), rank), problem.partition);
  return builder.finish();
}

} // namespace trainstone
