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

Problem problem_of_size(Collective collective, Index message_elements, Topology const& topology, Rank root,
                        Rank servers) {
  Index const elements = !has_data(collective) ? 0 : has_halves(collective) ? 2 * message_elements : message_elements;
  return even_problem(collective, elements, topology, root, servers);
}

Agreement agreement_on(Problem const& problem) {
  Agreement agreement{
      .root = problem.root, .servers = problem.servers, .segment = problem.longest_segment(), .placement = {}};
  agreement.placement.add(problem.partition.fingerprint().value());
  agreement.placement.add(problem.topology.fingerprint().value());
  agreement.placement.add(problem.shared_memory ? 1 : 0);
  agreement.placement.add(static_cast<std::uint64_t>(problem.distance));
  return agreement;
}

Range sent_half(Problem const& problem) { return {0, problem.elements() / 2}; }

Range received_half(Problem const& problem) {
  Index const half = problem.elements() / 2;
  return {half, 2 * half};
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
