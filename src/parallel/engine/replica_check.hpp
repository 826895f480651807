#pragma once

// Checks whether ranks that hold the same parameters hold the same bits. Owns the comparison between ranks and its
// text; the hash is parallel/engine/parameter_hash.hpp. The copies of the token table on the first and the last stage
// are replicas, too. Parameters that one rank alone holds are part of the hash, but are not compared.

#include "comm/execution/communicator.hpp"
#include "parallel/engine/parameter_hash.hpp"

#include <cstdint>
#include <string>

namespace trainstone {

struct ReplicaComparison {
  bool equal;
  ParameterHash hash; ///< as this rank sees it with the ranks of its shard group, its tensor group and its stages
};

/// Collective; waits. The collectives of the engine must have finished. Sends replica_check_traffic().
ReplicaComparison compare_replicas(ExecutionSpace const& exec, Communicator& communicator, ShardedEngine& engine);

/// "ranks 0, 2: hash 0123456789abcdef; rank 1: hash ...". It also says on which ranks copies of the token table differ.
/// Collective, not counted.
std::string describe_replicas(Communicator const& communicator, ReplicaComparison const& compared);

/// The traffic of a rank for one comparison.
Traffic replica_check_traffic(StateLayout const& layout);

} // namespace trainstone
