#pragma once

// Whether ranks that hold the same parameters hold the same bits. Owns the agreement between ranks and its text; the
// hash is parallel/parameter_hash.hpp. What one rank alone holds is not compared, but is part of the hash.

#include "comm/communicator.hpp"
#include "parallel/parameter_hash.hpp"

#include <cstdint>
#include <string>

namespace trainstone {

struct ReplicaComparison {
  bool equal;
  std::uint64_t hash; ///< of all parameters, as this rank and those that it shards with see them
};

/// Collective; waits. The engine's collectives have finished. Sends replica_check_traffic().
ReplicaComparison compare_replicas(ExecutionSpace const& exec, Communicator& communicator, ShardedEngine& engine);

/// "ranks 0, 2: hash 0123456789abcdef; rank 1: hash ...". Collective, not counted.
std::string describe_replicas(Communicator const& communicator, std::uint64_t hash);

/// What a rank sends for one comparison.
Traffic replica_check_traffic(ShardPlan const& plan);

} // namespace trainstone
