#pragma once

// Measures at what rates this machine moves optimizer state. Owns which requests are made. Promises: the file and its
// requests are those of a training (core/file_queue.hpp). Writes no other file.

#include "comm/execution/communicator.hpp"
#include "core/memory.hpp"
#include "core/residence.hpp"
#include "parallel/program/offload_prediction.hpp"

#include <string>

namespace trainstone {

struct OffloadMeasurement {
  std::string folder = {}; ///< of the file; empty: the system's for such files
  DirectIo direct_io = DirectIo::automatic;
  std::uint64_t request_bytes = 16 << 20; ///< rounded up to file_alignment
  std::uint64_t file_bytes = 256 << 20;   ///< of each rank, at least one request
  int rounds = 3;                         ///< over the file, without one that is not counted
};

/// The median round of the slowest rank; all ranks measure at the same time. Collective.
/// \throws InputError, Error as ScratchFile
OffloadRates measure_offload(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger,
                             OffloadMeasurement const& measurement = {});

} // namespace trainstone
