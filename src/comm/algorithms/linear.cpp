#include "comm/algorithms/linear.hpp"

#include "comm/algorithms/contributions.hpp"

namespace trainstone {

namespace {

/// The root sends every rank what `of_rank` says.
template <class RangeOfRank>
Schedule make_linear_distribution(Problem const& problem, Rank rank, RangeOfRank const& of_rank) {
  ScheduleBuilder builder(problem, Algorithm::linear, rank);
  if (rank != problem.root) {
    builder.receive(problem.root, data_slice(of_rank(rank)));
    return builder.finish();
  }
  for (Rank target = 0; target < problem.ranks(); ++target) {
    if (target != rank) builder.send(target, data_slice(of_rank(target)));
  }
  return builder.finish();
}

} // namespace

Schedule make_linear_broadcast(Problem const& problem, Rank rank) {
  return make_linear_distribution(problem, rank, [&](Rank) { return Range{0, problem.elements()}; });
}

Schedule make_linear_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::linear, rank);
  Slice const data = data_slice({0, problem.elements()});
  if (rank != problem.root) {
    builder.send(problem.root, data);
    return builder.finish();
  }
  std::vector<Slice> contributions;
  for (Rank source = 0; source < problem.ranks(); ++source) {
    contributions.push_back(source == rank ? data : scratch_slice(builder.new_scratch(problem.elements())));
    if (source != rank) builder.receive(source, contributions.back());
  }
  append_sum_in_order(builder, contributions, static_cast<std::size_t>(rank));
  return builder.finish();
}

Schedule make_linear_gather(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::linear, rank);
  if (rank != problem.root) {
    builder.send(problem.root, data_slice(problem.partition.range(rank)));
    return builder.finish();
  }
  for (Rank source = 0; source < problem.ranks(); ++source) {
    if (source != rank) builder.receive(source, data_slice(problem.partition.range(source)));
  }
  return builder.finish();
}

Schedule make_linear_scatter(Problem const& problem, Rank rank) {
  return make_linear_distribution(problem, rank, [&](Rank target) { return problem.partition.range(target); });
}

} // namespace trainstone
