#pragma once

// What a run says about its files of state: each rank knows its own.

#include "comm/execution/communicator.hpp"
#include "core/files_of_ranks.hpp"
#include "core/scratch_file.hpp"
#include "parallel/engine/sharded_engine.hpp"

namespace trainstone {

/// A file of this rank that has state; null: there is none.
ScratchFile const* state_file(ShardedEngine const& engine);

/// \param[in] file  this rank's, or null   Collective.
FilesOfRanks files_of_ranks(ExecutionSpace const& exec, Communicator& communicator, ScratchFile const* file);

} // namespace trainstone
