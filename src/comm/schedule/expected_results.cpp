#include "comm/schedule/expected_results.hpp"

#include <algorithm>

namespace trainstone::Impl {

namespace {

Expected in_place(Range const& range, Rank first, Rank last) { return {range, range.begin, first, last}; }

/// Block b from rank b.
std::vector<Expected> every_block(Partition const& partition) {
  std::vector<Expected> blocks;
  for (Rank b = 0; b < partition.ranks(); ++b) blocks.push_back(in_place(partition.range(b), b, b + 1));
  return blocks;
}

std::vector<Expected> exchanged_blocks(Partition const& partition, Rank rank) {
  std::vector<Expected> blocks;
  for (Rank from = 0; from < partition.ranks(); ++from) {
    Range const source = all_to_all_range(partition, from, rank);
    blocks.push_back({all_to_all_range(partition, rank, from), source.begin, from, from + 1});
  }
  return blocks;
}

std::vector<Expected> all_expected(Problem const& problem, Rank rank) {
  Partition const& partition = problem.partition;
  Rank const ranks = problem.ranks();
  Rank const root = problem.root;
  Range const all = partition.range(0, ranks);
  switch (problem.collective) {
  case Collective::all_reduce: return {in_place(all, 0, ranks)};
  case Collective::reduce_scatter: return {in_place(partition.range(rank), 0, ranks)};
  case Collective::all_gather: return every_block(partition);
  case Collective::broadcast: return {in_place(all, root, root + 1)};
  case Collective::reduce: return rank == root ? std::vector{in_place(all, 0, ranks)} : std::vector<Expected>{};
  case Collective::gather: return rank == root ? every_block(partition) : std::vector<Expected>{};
  case Collective::scatter: return {in_place(partition.range(rank), root, root + 1)};
  case Collective::all_to_all: return exchanged_blocks(partition, rank);
  case Collective::barrier:
  case Collective::signal_wait: return {};
  case Collective::server_push: return {in_place(partition.range(rank), 0, problem.workers())}; // workers' are empty
  case Collective::server_pull: return rank < problem.workers() ? every_block(partition) : std::vector<Expected>{};
  case Collective::send_receive:
  case Collective::copy: {
    Rank const source = problem.source_of(rank);
    return {{received_half(problem), sent_half(problem).begin, source, source + 1}};
  }
  case Collective::send:
    return rank == problem.destination_of(root) ? std::vector{in_place(all, root, root + 1)} : std::vector<Expected>{};
  }
  return {};
}

} // namespace

Range initially_held(Problem const& problem, Rank rank) {
  Range const all = problem.partition.range(0, problem.ranks());
  Range const nothing{0, 0};
  switch (problem.collective) {
  case Collective::all_reduce:
  case Collective::reduce_scatter:
  case Collective::reduce:
  case Collective::all_to_all: return all;
  case Collective::all_gather:
  case Collective::gather:
  case Collective::server_pull: return problem.partition.range(rank);
  case Collective::broadcast:
  case Collective::send:
  case Collective::scatter: return rank == problem.root ? all : nothing;
  case Collective::server_push: return rank < problem.workers() ? all : nothing;
  case Collective::send_receive:
  case Collective::copy: return sent_half(problem);
  case Collective::barrier:
  case Collective::signal_wait: return nothing;
  }
  return nothing;
}

std::vector<Expected> expected_results(Problem const& problem, Rank rank) {
  std::vector<Expected> expected = all_expected(problem, rank);
  std::erase_if(expected, [](Expected const& part) { return part.range.empty(); });
  std::ranges::sort(expected, {}, [](Expected const& part) { return part.range.begin; });
  return expected;
}

Range finally_held(Problem const& problem, Rank rank) {
  std::vector<Expected> const results = expected_results(problem, rank);
  if (results.empty()) return {0, 0};
  return {results.front().range.begin, results.back().range.end};
}

} // namespace trainstone::Impl
