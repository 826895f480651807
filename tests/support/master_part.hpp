#pragma once

// The place of a tensor in the state of a rank, for tests that change it.

#include "model/parameter_runs.hpp"
#include "parallel/engine/sharded_engine.hpp"

namespace trainstone::test {

/// What this rank holds of a tensor's master copy; empty: nothing.
inline Vector<float> master_part(ShardedEngine const& engine, Tensor tensor, Index block) {
  ParameterTensor const& wanted = engine.table().find(tensor, block);
  Range const share = engine.plan().layout.share(wanted.group);
  Vector<float> part;
  for_each_tensor(engine.table(), wanted.group, share, [&](ParameterTensor const& one, Range const& here) {
    if (&one == &wanted)
      part = Vector<float>(engine.master_share(wanted.group).data() + (here.begin - share.begin),
                           static_cast<std::size_t>(here.size()));
  });
  return part;
}

} // namespace trainstone::test
