#include "comm/algorithms/tree.hpp"

#include "comm/algorithms/binomial_broadcast.hpp"
#include "comm/algorithms/binomial_reduce.hpp"

namespace trainstone {

Schedule make_tree_all_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::tree, rank);
  Group const group = Group::all(problem.ranks(), rank);
  Range const data{0, problem.elements()};
  append_binomial_reduce(builder, group, 0, data);
  append_binomial_broadcast(builder, group, 0, data);
  return builder.finish();
}

} // namespace trainstone
