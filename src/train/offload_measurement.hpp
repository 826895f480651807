#pragma once

// Measures at what rates this machine moves optimizer state and updates it meanwhile. Owns which chunks there are.
// Promises: file, requests, copies and kernels are those of a training's update, in its order, as they share caches and
// the bandwidth of memory. Writes no other file.

#include "comm/execution/communicator.hpp"
#include "core/files_of_ranks.hpp"
#include "core/memory.hpp"
#include "core/residence.hpp"
#include "parallel/plan/config.hpp"
#include "parallel/plan/recipe.hpp"
#include "parallel/program/offload_prediction.hpp"

namespace trainstone {

struct OffloadMeasurement {
  static constexpr std::int64_t fewest_chunks = 4;

  FileSettings files = {};
  std::uint64_t request_bytes = 16 << 20; ///< of a chunk, at most; a vector of it is rounded up to file_alignment
  std::uint64_t file_bytes = 256 << 20;   ///< of each rank, about
  int rounds = 5;                         ///< updates, without one that is not counted
  OptimizerConfig optimizer = {};
  StateTypes types = {};
  Storage gradients = Storage::fp32; ///< summed
};

struct MeasuredOffload {
  OffloadRates rates; ///< the median update of the slowest rank; all ranks measure at the same time
  FilesOfRanks files;
};

/// Collective. \throws InputError, Error as ScratchFile
MeasuredOffload measure_offload(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger,
                                OffloadMeasurement const& measurement = {});

} // namespace trainstone
