#include "parallel/mesh.hpp"

namespace trainstone {

std::vector<Rank> Mesh::members(Axis axis, Rank rank) const {
  Rank const step = axis == Axis::shard ? 1 : shard;
  Rank const first = rank - place(axis, rank) * step;
  std::vector<Rank> all;
  for (Rank i = 0; i < size(axis); ++i) all.push_back(first + i * step);
  return all;
}

} // namespace trainstone
