#include "comm/algorithms/binomial_reduce.hpp"

#include "comm/algorithms/binomial_tree.hpp"

namespace trainstone {

void append_binomial_reduce(ScheduleBuilder& builder, Group const& group, Rank root, Range const& range) {
  Rank const size = group.size();
  BinomialPlace const place = binomial_place((group.me() - root + size) % size, size);
  Slice const received = scratch_slice(builder.new_scratch(place.children.empty() ? 0 : range.size()));
  for (Rank const child : place.children) {
    builder.receive(group[root + child], received);
    builder.reduce(received, data_slice(range));
    builder.end_round();
  }
  if (place.parent) {
    builder.send(group[root + *place.parent], data_slice(range));
    builder.end_round();
  }
}

Schedule make_binomial_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::binomial, rank);
  append_binomial_reduce(builder, Group::all(problem.ranks(), rank), problem.root, {0, problem.elements()});
  return builder.finish();
}

} // namespace trainstone
