#pragma once

// The data-parallel ranks as a grid with two named axes. Owns who shards with whom and who replicates whom. A plain
// value.

#include "comm/topology.hpp"

#include <vector>

namespace trainstone {

enum class Axis {
  shard,     ///< ranks that share one copy of what is sharded: neighbours in rank, the fast index
  replicate, ///< ranks that hold the same shard
};

struct Mesh {
  Rank shard = 1;    ///< F: ranks of a shard group
  Rank replicas = 1; ///< R: shard groups

  Rank ranks() const { return shard * replicas; }
  Rank size(Axis axis) const { return axis == Axis::shard ? shard : replicas; }
  /// The place of a rank on an axis.
  Rank place(Axis axis, Rank rank) const { return axis == Axis::shard ? rank % shard : rank / shard; }
  /// The ranks that differ from `rank` on this axis only, ascending, itself included.
  std::vector<Rank> members(Axis axis, Rank rank) const;
  /// The same number for exactly these ranks.
  int colour(Axis axis, Rank rank) const { return axis == Axis::shard ? rank / shard : rank % shard; }
};

} // namespace trainstone
