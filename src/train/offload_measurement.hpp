#pragma once

// Measures at what rates this machine moves optimizer state. Owns which requests are made. Promises: the file and its
// requests are those of a training (core/file_queue.hpp). Writes no other file.

#include "comm/execution/communicator.hpp"
#include "core/files_of_ranks.hpp"
#include "core/memory.hpp"
#include "core/residence.hpp"
#include "parallel/program/offload_prediction.hpp"

namespace trainstone {

struct OffloadMeasurement {
  FileSettings files = {};
  std::uint64_t request_bytes = 16 << 20; ///< rounded up to file_alignment
  std::uint64_t file_bytes = 256 << 20;   ///< of each rank, at least one request
  int rounds = 3;                         ///< over the file, without one that is not counted
};

struct MeasuredOffload {
  OffloadRates rates; ///< the median round of the slowest rank; all ranks measure at the same time
  FilesOfRanks files;
};

/// Collective. \throws InputError, Error as ScratchFile
MeasuredOffload measure_offload(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger,
                                OffloadMeasurement const& measurement = {});

} // namespace trainstone
