#include "parallel/plan/mesh.hpp"

#include "parallel/plan/strategies.hpp"

namespace trainstone {

Rank Mesh::size(Axis axis) const {
  std::array<Rank, axes.size()> const sizes{tensor, shard, replica, pipeline};
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
  bool const has_stages = parallel.pipeline > 1 && ranks % parallel.pipeline == 0;
  auto const stages = static_cast<Rank>(has_stages ? parallel.pipeline : 1), all = static_cast<Rank>(ranks) / stages;
  StateSharers const sharers = row_of(parallel.strategy).sharers;
  if (sharers == StateSharers::group && parallel.shard_group > 0 && all % parallel.shard_group == 0) {
    auto const group = static_cast<Rank>(parallel.shard_group);
    return {.shard = group, .replica = all / group, .pipeline = stages};
  }
  if (sharers == StateSharers::all || parallel.updates_alone()) return {.shard = all, .pipeline = stages};
  return {.replica = all, .pipeline = stages};
}

} // namespace trainstone
