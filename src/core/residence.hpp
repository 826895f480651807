#pragma once

// Where parts of the training state lie between their uses, and how files that hold them are accessed. Plain values
// without Kokkos.

#include <cstdint>
#include <string>
#include <string_view>

namespace trainstone {

enum class Residence {
  kernels, ///< in the memory that kernels work on
  host,    ///< in other memory of the host, and copied to and from there: also where kernels run on the host
  file,
};

/// As decks write it.
constexpr std::string_view to_string(Residence residence) {
  switch (residence) {
  case Residence::kernels: return "none";
  case Residence::host: return "host";
  case Residence::file: return "file";
  }
  return "unknown";
}

/// Whether reads and writes pass by the system's cache of files.
enum class DirectIo {
  automatic, ///< if the file system can
  on,
  off,
};

/// What reads and writes files, as fio calls it.
enum class IoEngine {
  automatic, ///< io_uring where the build and the system have it
  io_uring,  ///< pieces of a request at the same time
  psync,     ///< pread and pwrite, one call after the other
};

/// Of files that hold state.
struct FileSettings {
  std::string folder = {}; ///< empty: the system's for such files
  DirectIo direct_io = DirectIo::automatic;
  IoEngine io_engine = IoEngine::automatic;
};

/// Direct reads and writes begin, end and lie in memory at multiples of so many bytes.
inline constexpr std::uint64_t file_alignment = 4096;

/// What `bytes` bytes occupy in a file, and what is read or written of them.
constexpr std::uint64_t file_footprint(std::uint64_t bytes) {
  return (bytes + file_alignment - 1) / file_alignment * file_alignment;
}

} // namespace trainstone
