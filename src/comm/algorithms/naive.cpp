#include "comm/algorithms/naive.hpp"

#include "comm/algorithms/contributions.hpp"

namespace trainstone {

Schedule make_naive_all_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::naive, rank);
  Group const group = Group::all(problem.ranks(), rank);
  Slice const own = data_slice({0, problem.elements()});
  std::vector<Slice> contributions(static_cast<std::size_t>(problem.ranks()), own);
  // everybody starts with another peer: nobody's port is the first choice of all
  for (Rank distance = 1; distance < problem.ranks(); ++distance) {
    Rank const source = group[rank - distance];
    Slice const received = scratch_slice(builder.new_scratch(problem.elements()));
    contributions[static_cast<std::size_t>(source)] = received;
    builder.receive(source, received);
    builder.send(group[rank + distance], own);
  }
  append_sum_in_order(builder, contributions, static_cast<std::size_t>(rank));
  return builder.finish();
}

} // namespace trainstone
