#include "support/problems.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone::test {

namespace {

constexpr Rank many_ranks = 34; // from here on few problems

struct NamedPartition {
  std::string name;
  Partition partition;
};

/// Blocks of the last `blocks` ranks; the first ones have empty blocks.
std::vector<NamedPartition> partitions(Rank ranks, Rank blocks) {
  auto const at_the_end = [&](std::vector<Index> const& sizes) {
    std::vector<Index> all(static_cast<std::size_t>(ranks - blocks), 0);
    all.insert(all.end(), sizes.begin(), sizes.end());
    return Partition::of_sizes(all);
  };
  auto const even = [&](Index elements) {
    Partition const partition = Partition::even(elements, blocks);
    std::vector<Index> sizes;
    for (Rank block = 0; block < blocks; ++block) sizes.push_back(partition.size(block));
    return at_the_end(sizes);
  };
  std::size_t const n = static_cast<std::size_t>(blocks);
  std::vector<Index> growing, with_empty, last(n, 0), first(n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    growing.push_back(static_cast<Index>(3 * i + 1));
    with_empty.push_back(i % 3 == 1 ? 0 : static_cast<Index>(i % 5 + 2));
  }
  last.back() = 11;
  first.front() = 5;
  if (ranks >= many_ranks)
    return {{"2N+3 elements", even(2 * blocks + 3)},
            {"with empty blocks", at_the_end(with_empty)},
            {"no elements", even(0)}};
  return {{"3N elements", even(3 * blocks)},
          {"2N+3 elements", even(2 * blocks + 3)},
          {"N-1 elements", even(blocks - 1)},
          {"1 element", even(1)},
          {"growing blocks", at_the_end(growing)},
          {"with empty blocks", at_the_end(with_empty)},
          {"only the last block", at_the_end(last)},
          {"only the first block", at_the_end(first)},
          {"no elements", even(0)}};
}

struct NamedTopology {
  std::string name;
  Topology topology;
};

/// Nodes of 1, 2, 3, 1, 2, 3, ... ranks.
Topology uneven_nodes(Rank ranks) {
  std::vector<int> node_of_rank;
  for (int node = 0; std::ssize(node_of_rank) < ranks; ++node)
    node_of_rank.insert(node_of_rank.end(), static_cast<std::size_t>(node % 3 + 1), node);
  node_of_rank.resize(static_cast<std::size_t>(ranks));
  return Topology(node_of_rank);
}

std::vector<NamedTopology> topologies(Rank ranks) {
  std::vector<NamedTopology> found{{"1 node", Topology::one_node(ranks)}};
  for (int const nodes : {2, 3}) {
    if (nodes > ranks) continue;
    found.push_back({fmt::format("{} nodes", nodes), Topology::block(ranks, nodes)});
    found.push_back({fmt::format("{} nodes in turn", nodes), Topology::cyclic(ranks, nodes)});
  }
  found.push_back({"uneven nodes", uneven_nodes(ranks)});
  if (ranks > 3) found.push_back({"a node per rank", Topology::block(ranks, ranks)});
  if (ranks % 4 == 0) found.push_back({"nodes of 4", Topology::block(ranks, ranks / 4)});
  return found;
}

/// Different numbers between 0 and ranks - 1: a root for the i-th problem.
Rank root(std::size_t i, Rank ranks) {
  std::vector<Rank> const roots{0, ranks - 1, ranks / 2, 1 % ranks};
  return roots[i % roots.size()];
}

NamedProblem make_problem(Collective collective, NamedPartition const& partition, NamedTopology const& topology,
                          std::size_t i) {
  std::vector<Index> const segments{0, 1, 2, 7};
  Rank const ranks = partition.partition.ranks();
  NamedProblem named{partition.name + ", " + topology.name,
                     {.collective = collective,
                      .partition = partition.partition,
                      .topology = topology.topology,
                      .root = has_root(collective) ? root(i, ranks) : 0,
                      .segment = ranks >= many_ranks ? 3 : segments[i % segments.size()]}};
  if (has_root(collective)) named.name += fmt::format(", root {}", named.problem.root);
  return named;
}

/// The numbers of servers to try among so many ranks.
std::vector<Rank> server_counts(Rank ranks) {
  std::vector<Rank> counts{1, 2, ranks / 2, ranks - 1};
  std::erase_if(counts, [&](Rank count) { return count < 1 || count >= ranks; });
  std::ranges::sort(counts);
  counts.erase(std::ranges::unique(counts).begin(), counts.end());
  return counts;
}

std::vector<NamedProblem> problems_of(Collective collective, Rank ranks) {
  std::vector<NamedProblem> found;
  std::vector<NamedTopology> const places = topologies(ranks);
  std::size_t i = static_cast<std::size_t>(ranks);
  std::vector<Rank> const blocks = has_servers(collective) ? server_counts(ranks) : std::vector{ranks};
  for (Rank const owners : blocks) {
    for (NamedPartition const& partition : partitions(ranks, owners)) {
      if (!has_data(collective) && partition.partition.elements() > 0) continue;
      for (std::size_t const place : {std::size_t{0}, i % places.size(), (i + 3) % places.size()}) {
        found.push_back(make_problem(collective, partition, places[place], i));
        found.back().problem.servers = has_servers(collective) ? owners : 0;
        ++i;
      }
    }
  }
  return found;
}

} // namespace

std::vector<NamedProblem> problems_for(RegisteredAlgorithm const& line, Rank ranks) {
  std::vector<NamedProblem> accepted;
  for (NamedProblem& named : problems_of(line.collective, ranks)) {
    for (bool const shared_memory : {false, true}) {
      named.problem.shared_memory = shared_memory;
      if (!refusal(named.problem, line.algorithm).empty()) continue;
      accepted.push_back(named);
      if (shared_memory) accepted.back().name += ", shared memory";
    }
  }
  return accepted;
}

NamedProblem typical_problem(RegisteredAlgorithm const& line, Rank ranks) {
  Rank const servers = has_servers(line.collective) ? 2 : 0;
  Rank const blocks = servers == 0 ? ranks : servers;
  NamedPartition partition = partitions(ranks, blocks)[1];
  if (!has_data(line.collective)) partition = {"no elements", Partition::even(0, ranks)};
  for (NamedTopology const& topology : {NamedTopology{"2 nodes", Topology::block(ranks, 2)}, topologies(ranks)[0]}) {
    NamedProblem named = make_problem(line.collective, partition, topology, 1);
    named.problem.servers = servers;
    named.problem.shared_memory = line.uses_shared_memory();
    if (refusal(named.problem, line.algorithm).empty()) return named;
  }
  return {};
}

std::string name_of(RegisteredAlgorithm const& line) {
  return fmt::format("{} {}", to_string(line.collective), to_string(line.algorithm));
}

} // namespace trainstone::test
