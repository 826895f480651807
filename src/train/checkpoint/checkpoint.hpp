#pragma once

// Checkpoints of a training: written by all ranks together, every element once, by a rank that owns it; read by any
// number of ranks under any strategy. Owns which rank writes and reads what. Promises: a checkpoint that was killed
// while it was written is none; nothing of one is used before all of it was verified. What it sends is not counted: it
// belongs to no step.

#include "comm/communicator.hpp"
#include "parallel/sharded_engine.hpp"
#include "train/checkpoint/stored_checkpoint.hpp"

#include <filesystem>
#include <string>

namespace trainstone {

struct WrittenCheckpoint {
  std::string name;        ///< within the folder
  std::uint64_t bytes = 0; ///< of all ranks' files
  double seconds = 0;      ///< until it had its name
};

/// What of a group's elements, without padding, a rank writes.
Range written_range(ShardPlan const& plan, Index group);

/// Writes the state of a training that has completed about.progress.step; of `about` groups, vectors and files are
/// filled in. Finishes what is in flight. Collective. Work: reads and writes 4 (1 + moments) bytes per parameter, over
/// all ranks. \throws CollectiveError (exit 70) with the reason: a full medium
WrittenCheckpoint write_checkpoint(ExecutionSpace const& exec, Communicator const& communicator, ShardedEngine& engine,
                                   CheckpointManifest about, std::filesystem::path const& folder);

/// A checkpoint that is whole and belongs to this training: every rank reads some of the files and compares their
/// hashes. Collective. \throws CollectiveError (exit 64) that names the checkpoint and what is wrong with it
StoredCheckpoint verify_checkpoint(Communicator const& communicator, std::filesystem::path const& path,
                                   TrainingIdentity const& identity, ShardPlan const& plan);

/// Sets parameters, master copies and moments from a verified checkpoint. Collective; waits.
void read_checkpoint(ExecutionSpace const& exec, ShardedEngine& engine, StoredCheckpoint const& checkpoint);

} // namespace trainstone
