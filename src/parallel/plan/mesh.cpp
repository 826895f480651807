#include "parallel/plan/mesh.hpp"

#include "parallel/plan/strategies.hpp"

namespace trainstone {

Rank Mesh::size(Axis axis) const {
  std::array<Rank, axes.size()> const sizes{tensor, features, shard, replica, pipeline};
  return sizes[static_cast<std::size_t>(axis)];
}

Rank Mesh::stride(Axis axis) const {
  Rank ranks = 1;
  for (Axis const faster : axes)
    if (faster < axis) ranks *= size(faster);
  return ranks;
}

Rank Mesh::rank_at(Axis axis, Rank rank, Rank there) const { return rank + (there - index(axis, rank)) * stride(axis); }

std::vector<Rank> Mesh::members(Axis axis, Rank rank) const {
  std::vector<Rank> all;
  for (Rank i = 0; i < size(axis); ++i) all.push_back(rank_at(axis, rank, i));
  return all;
}

Mesh mesh_of(ParallelConfig const& parallel, Index ranks) {
  auto const divisor = [](Index wanted, Index of) { return wanted > 1 && of % wanted == 0 ? wanted : 1; };
  Index const stages = divisor(parallel.pipeline, ranks), tensor = divisor(parallel.tensor, ranks / stages),
              features = divisor(parallel.features(), ranks / stages / tensor);
  Mesh mesh{.tensor = static_cast<Rank>(tensor),
            .features = static_cast<Rank>(features),
            .pipeline = static_cast<Rank>(stages)};
  auto const data = static_cast<Rank>(ranks / stages / mesh.sharers());
  StateSharers const sharers = row_of(parallel.strategy).sharers;
  if (has_dedicated_servers(parallel) && parallel.servers >= 1 && parallel.servers < data) {
    mesh.shard = data;
    mesh.servers = static_cast<Rank>(parallel.servers);
  } else if (sharers == StateSharers::group && parallel.shard_group > 0 && data % parallel.shard_group == 0) {
    mesh.shard = static_cast<Rank>(parallel.shard_group);
  } else if (sharers == StateSharers::all || parallel.colocated || parallel.updates_alone()) {
    mesh.shard = data;
  }
  mesh.replica = data / mesh.shard;
  return mesh;
}

} // namespace trainstone
