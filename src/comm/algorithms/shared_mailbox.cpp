#include "comm/algorithms/shared_mailbox.hpp"

namespace trainstone {

namespace {

Slice mailbox_slice(Range const& range, Rank owner = own_memory) { return {BufferId::mailbox, range, owner}; }

Range all_elements(Problem const& problem) { return {0, problem.elements()}; }

/// Every rank puts a range of its data where neighbours find it, and takes from there what `collect` says.
template <class Collect>
Schedule make_exchange(Problem const& problem, Rank rank, Range const& given, Collect const& collect) {
  ScheduleBuilder builder(problem, Algorithm::shared_mailbox, rank);
  if (problem.ranks() == 1 || problem.elements() == 0) return builder.finish();
  builder.copy(data_slice(given), mailbox_slice(given));
  builder.node_barrier();
  collect(builder);
  return builder.finish();
}

/// The sums of a range over all neighbours.
Schedule make_sum(Problem const& problem, Rank rank, Range const& wanted) {
  return make_exchange(problem, rank, all_elements(problem), [&](ScheduleBuilder& builder) {
    builder.combine(mailbox_slice(wanted, every_neighbour), data_slice(wanted));
  });
}

} // namespace

Schedule make_shared_mailbox_all_reduce(Problem const& problem, Rank rank) {
  return make_sum(problem, rank, all_elements(problem));
}

Schedule make_shared_mailbox_reduce_scatter(Problem const& problem, Rank rank) {
  return make_sum(problem, rank, problem.partition.range(rank));
}

Schedule make_shared_mailbox_all_gather(Problem const& problem, Rank rank) {
  return make_exchange(problem, rank, problem.partition.range(rank), [&](ScheduleBuilder& builder) {
    for (Rank distance = 1; distance < problem.ranks(); ++distance) {
      Rank const owner = (rank + distance) % problem.ranks();
      Range const block = problem.partition.range(owner);
      builder.copy(mailbox_slice(block, owner), data_slice(block));
    }
  });
}

Schedule make_shared_mailbox_broadcast(Problem const& problem, Rank rank) {
  Range const all = all_elements(problem);
  bool const is_root = rank == problem.root;
  return make_exchange(problem, rank, is_root ? all : Range{0, 0}, [&](ScheduleBuilder& builder) {
    if (!is_root) builder.copy(mailbox_slice(all, problem.root), data_slice(all));
  });
}

} // namespace trainstone
