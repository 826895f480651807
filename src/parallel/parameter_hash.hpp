#pragma once

// A hash of all parameters, master copies included, that does not depend on how they are sharded or padded: runs on
// different numbers of ranks are compared by it.

#include "parallel/sharded_engine.hpp"

#include <cstdint>

namespace trainstone {

/// The sum, modulo 2^64, of XXH3 over every block of 256 elements of every group (the last one as long as the group
/// reaches), seeded with its place: of what the model reads, as fp32, and three times that of the master copy, if there
/// is one. Ranks that hold shares add up theirs. Collective; waits. The same on all ranks if replicas agree.
std::uint64_t parameter_hash(ExecutionSpace const& exec, ShardedEngine& engine);

/// Whether it adds up one value over the ranks of the shard axis.
inline bool hash_adds_up_shares(ShardPlan const& plan) {
  return plan.mesh.shard > 1 && (plan.sharding.parameters || plan.types.master);
}

} // namespace trainstone
