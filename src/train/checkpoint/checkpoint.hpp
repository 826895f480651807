#pragma once

// Checkpoints of a training: written by all ranks together, every element once, by a rank that owns it; read by any
// number of ranks and stages under any strategy. Owns the assignment of elements to ranks. Promises: a checkpoint whose
// writing was killed does not count as one; no part of a checkpoint is used before all of it was verified. Its messages
// are not counted, because they belong to no step.

#include "comm/execution/communicator.hpp"
#include "parallel/engine/sharded_engine.hpp"
#include "train/checkpoint/stored_checkpoint.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace trainstone {

struct WrittenCheckpoint {
  std::string name;        ///< within the folder
  std::uint64_t bytes = 0; ///< of all ranks' files
  double seconds = 0;      ///< until it had its name
};

/// Vectors of every group: parameters (the master copy, where there is one) and moments.
inline Index state_vectors(StateLayout const& layout) { return 1 + layout.moments; }

/// The range of a group's elements, counted from its begin here and without padding, that a rank writes. It is empty
/// for the copy of the token table on the last stage.
Range written_range(StateLayout const& layout, Index group);

/// A part of a file, and where its elements are here.
struct WrittenPart {
  CheckpointPart part;
  Index group;    ///< of this stage
  Index in_share; ///< where the part begins in this rank's share of the group
};

/// What a rank writes, in the order of its file.
std::vector<WrittenPart> written_parts(StateLayout const& layout, ParameterTable const& table);

/// Writes the state of a training of about.model that has completed about.progress.step. Fills in groups, vectors and
/// files of `about`. Finishes collectives in flight. Collective. Work: reads and writes 4 (1 + moments) bytes per
/// parameter, over all ranks. \throws CollectiveError (exit 70) with the reason: a full medium
WrittenCheckpoint write_checkpoint(ExecutionSpace const& exec, Communicator const& communicator, ShardedEngine& engine,
                                   CheckpointManifest about, std::filesystem::path const& folder);

/// Opens a checkpoint and checks that it is whole and belongs to this training. Every rank reads some of the files and
/// compares their hashes. Collective. \throws CollectiveError (exit 64) that names the checkpoint and what is wrong
/// with it
/// \param[in] vectors  state_vectors() of this training
StoredCheckpoint verify_checkpoint(Communicator const& communicator, std::filesystem::path const& path,
                                   TrainingIdentity const& identity, GptConfig const& model, Index vectors);

/// Sets parameters, master copies and moments of all groups of this rank's stage from a verified checkpoint.
/// Collective; waits.
void read_checkpoint(ExecutionSpace const& exec, ShardedEngine& engine, StoredCheckpoint const& checkpoint);

} // namespace trainstone
