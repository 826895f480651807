#pragma once

// A hash of all parameters, master copies included. It does not depend on sharding, padding or stages, so it can
// compare runs on different numbers of ranks.

#include "comm/schedule/counters.hpp"
#include "parallel/engine/sharded_engine.hpp"

#include <cstdint>

namespace trainstone {

struct ParameterHash {
  std::uint64_t value;
  bool copies_agree;   ///< the two copies of the token table, on the first and the last of several stages
  std::uint64_t uncut; ///< as `value`, of the tensors that all ranks that share slices have, on this rank's; of one 0
  std::uint64_t whole; ///< the same of ranks that share features
};

/// The value is the sum, modulo 2^64, of the XXH3 of every block of 256 elements of every section of the whole model.
/// The last block of a section may be shorter. The seed of a block is its place in the whole model. The sum covers the
/// parameters that the model reads, as fp32, and three times the master copy, if there is one. Ranks that hold shares
/// add up their sums, and so do tensor ranks and stages, which count every parameter once. The copies of the token
/// table are compared by such sums. Collective; waits. The result is the same on all ranks if replicas agree. Sends
/// parameter_hash_traffic(). \throws Error if a rank holds a part of a block
ParameterHash hash_parameters(ExecutionSpace const& exec, ShardedEngine& engine);

/// The value alone.
inline std::uint64_t parameter_hash(ExecutionSpace const& exec, ShardedEngine& engine) {
  return hash_parameters(exec, engine).value;
}

/// The traffic of a rank for one hash.
Traffic parameter_hash_traffic(StateLayout const& layout);

} // namespace trainstone
