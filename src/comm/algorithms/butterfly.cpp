#include "comm/algorithms/butterfly.hpp"

#include "comm/algorithms/power_of_two_core.hpp"

namespace trainstone {

namespace {

void append_core(ScheduleBuilder& builder, Group const& group, PowerOfTwoCore const& folding, Range const& whole) {
  Rank const number = folding.number_of(group.me());
  for (Rank distance = 1; distance < folding.core(); distance *= 2) {
    Rank const peer = group[folding.member_at(number ^ distance)];
    builder.reuse_scratch();
    Range const received = builder.new_scratch(whole.size());
    builder.receive(peer, scratch_slice(received));
    builder.send(peer, data_slice(whole));
    builder.reduce(scratch_slice(received), data_slice(whole));
    builder.end_round();
  }
}

} // namespace

Schedule make_butterfly_all_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::butterfly, rank);
  Group const all = Group::all(problem.ranks(), rank);
  PowerOfTwoCore const folding(all.size());
  Range const whole{0, problem.elements()};
  append_folding_sum(builder, all, whole);
  if (!folding.is_folded(all.me())) append_core(builder, all, folding, whole);
  append_unfolding(builder, all, whole);
  return builder.finish();
}

} // namespace trainstone
