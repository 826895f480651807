#pragma once

// A hash of all parameters, master copies included. It does not depend on sharding or padding, so it can compare runs
// on different numbers of ranks.

#include "parallel/engine/sharded_engine.hpp"

#include <cstdint>

namespace trainstone {

/// The sum, modulo 2^64, of the XXH3 of every block of 256 elements of every group of whole tensors. The last block of
/// a group may be shorter. The seed of a block is its place. The sum covers the parameters that the model reads, as
/// fp32, and three times the master copy, if there is one. Ranks that hold shares add up their sums. Collective; waits.
/// The result is the same on all ranks if replicas agree. \throws Error if a rank holds a part of a block
std::uint64_t parameter_hash(ExecutionSpace const& exec, ShardedEngine& engine);

/// Whether the hash adds up one value over the ranks of the shard axis.
inline bool hash_adds_up_shares(StateLayout const& layout) {
  return layout.mesh.shard > 1 && (layout.sharding.parameters || layout.types.master);
}

} // namespace trainstone
