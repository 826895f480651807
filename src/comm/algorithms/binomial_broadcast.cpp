#include "comm/algorithms/binomial_broadcast.hpp"

#include "comm/algorithms/binomial_tree.hpp"

#include <ranges>

namespace trainstone {

void append_binomial_broadcast(ScheduleBuilder& builder, Group const& group, Rank root, Range const& range) {
  Rank const size = group.size();
  BinomialPlace const place = binomial_place((group.me() - root + size) % size, size);
  if (place.parent) {
    builder.receive(group[root + *place.parent], data_slice(range));
    builder.end_round();
  }
  // the largest subtree has the longest way to go
  for (Rank const child : place.children | std::views::reverse) {
    builder.send(group[root + child], data_slice(range));
    builder.end_round();
  }
}

Schedule make_binomial_broadcast(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::binomial, rank);
  append_binomial_broadcast(builder, Group::all(problem.ranks(), rank), problem.root, {0, problem.elements()});
  return builder.finish();
}

} // namespace trainstone
