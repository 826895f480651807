#include "comm/algorithms/hierarchical.hpp"

#include "comm/algorithms/circulant.hpp"
#include "comm/algorithms/rabenseifner.hpp"
#include "comm/algorithms/ring.hpp"

#include <algorithm>
#include <bit>

namespace trainstone {

namespace {

/// How many ranks the smallest node has.
Rank count_lanes(Topology const& topology) {
  std::size_t lanes = topology.members(0).size();
  for (int node = 1; node < topology.nodes(); ++node) lanes = std::min(lanes, topology.members(node).size());
  return static_cast<Rank>(lanes);
}

/// What each rank of a node sums up: even slices, nothing for ranks beyond the lanes.
Partition slices_of(Index elements, Rank lanes, Rank members) {
  std::vector<Index> offsets = Partition::even(elements, lanes).offsets();
  offsets.resize(static_cast<std::size_t>(members) + 1, elements);
  return Partition::of_offsets(std::move(offsets));
}

void append_sums_in_shared_memory(ScheduleBuilder& builder, Range const& own) {
  builder.node_barrier(); // all data is there
  builder.combine(data_slice(own, every_neighbour), data_slice(own));
  builder.end_round();
}

void append_copies_in_shared_memory(ScheduleBuilder& builder, Group const& node, Partition const& slices) {
  builder.node_barrier(); // all slices are complete, and nobody reads this rank's part of them any more
  for (Rank distance = 1; distance < node.size(); ++distance) {
    Rank const owner = (node.me() + distance) % node.size();
    builder.copy(data_slice(slices.range(owner), node[owner]), data_slice(slices.range(owner)));
  }
  builder.node_barrier(); // nobody reads this rank's slice any more
}

void append_across_nodes(ScheduleBuilder& builder, Topology const& topology, Rank rank, Rank lane, Range const& slice) {
  std::vector<Rank> members;
  members.reserve(static_cast<std::size_t>(topology.nodes()));
  for (int node = 0; node < topology.nodes(); ++node) {
    members.push_back(topology.members(node)[static_cast<std::size_t>(lane)]);
  }
  Group const group = Group::of(std::move(members), rank);
  Partition const blocks = Partition::even(slice, group.size());
  if (std::has_single_bit(static_cast<unsigned>(group.size()))) { // the same volume, and nothing to pack
    append_rabenseifner_all_reduce(builder, group, blocks);
  } else {
    append_circulant_reduce_scatter(builder, group, blocks);
    append_circulant_all_gather(builder, group, blocks);
  }
}

} // namespace

Schedule make_hierarchical_all_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::hierarchical, rank);
  Topology const& topology = problem.topology;
  Group const node = Group::of(topology.neighbours(rank), rank);
  Rank const lanes = count_lanes(topology);
  Partition const slices = slices_of(problem.elements(), lanes, node.size());
  bool const shared = problem.shared_memory && node.size() > 1 && problem.elements() > 0;

  if (shared) {
    append_sums_in_shared_memory(builder, slices.range(node.me()));
  } else {
    append_ring_reduce_scatter(builder, node, slices);
  }
  if (node.me() < lanes) append_across_nodes(builder, topology, rank, node.me(), slices.range(node.me()));
  if (shared) {
    append_copies_in_shared_memory(builder, node, slices);
  } else {
    append_ring_all_gather(builder, node, slices);
  }
  return builder.finish();
}

} // namespace trainstone
