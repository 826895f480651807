#include "comm/schedule/problem.hpp"

#include "core/error.hpp"

namespace trainstone {

Problem even_problem(Collective collective, Index elements, Topology const& topology, Rank root, Rank servers) {
  Rank const ranks = topology.ranks();
  bool const served = has_servers(collective);
  return {.collective = collective,
          .partition = served ? server_partition(elements, ranks - servers, servers) : Partition::even(elements, ranks),
          .topology = topology,
          .root = has_root(collective) ? root : 0,
          .servers = served ? servers : 0};
}

Agreement agreement_on(Problem const& problem) {
  Agreement agreement{
      .root = problem.root, .servers = problem.servers, .segment = problem.longest_segment(), .placement = {}};
  agreement.placement.add(problem.partition.fingerprint().value());
  agreement.placement.add(problem.topology.fingerprint().value());
  agreement.placement.add(problem.shared_memory ? 1 : 0);
  return agreement;
}

Range all_to_all_range(Partition const& partition, Rank i, Rank j) {
  Rank const ranks = partition.ranks();
  Index begin = 0; // of the blocks i, i+1, ..., i+j-1 (mod ranks)
  Rank const end = i + j;
  if (end <= ranks) {
    begin = partition.range(i, end).size();
  } else {
    begin = partition.range(i, ranks).size() + partition.range(0, end - ranks).size();
  }
  return {begin, begin + partition.size(end % ranks)};
}

Partition server_partition(Index elements, Rank workers, Rank servers) {
  TRAINSTONE_REQUIRE(workers >= 1 && servers >= 1, "{} workers and {} servers", workers, servers);
  std::vector<Index> offsets(static_cast<std::size_t>(workers), 0);
  Partition const slices = Partition::even(elements, servers);
  offsets.insert(offsets.end(), slices.offsets().begin(), slices.offsets().end());
  return Partition::of_offsets(std::move(offsets));
}

} // namespace trainstone
