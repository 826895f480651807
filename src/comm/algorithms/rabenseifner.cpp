#include "comm/algorithms/rabenseifner.hpp"

#include "comm/algorithms/recursive.hpp"

namespace trainstone {

void append_rabenseifner_all_reduce(ScheduleBuilder& builder, Group const& group, Partition const& blocks) {
  PowerOfTwoCore const folding(group.size());
  Range const whole = blocks.range(0, blocks.ranks());
  append_folding_sum(builder, group, whole);
  if (!folding.is_folded(group.me())) {
    Hypercube const cube(group, Placement::bit_reversed);
    Partition const core_blocks = folding.excess() == 0 ? blocks : Partition::even(whole, folding.core());
    append_recursive_halving(builder, cube, core_blocks);
    append_recursive_doubling(builder, cube, core_blocks);
  }
  append_unfolding(builder, group, whole);
}

Schedule make_rabenseifner_all_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::rabenseifner, rank);
  append_rabenseifner_all_reduce(builder, Group::all(problem.ranks(), rank), problem.partition);
  return builder.finish();
}

} // namespace trainstone
