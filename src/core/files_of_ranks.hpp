#pragma once

// How the ranks of a run access their files of state, for results and for text. A plain value.

#include <cstdint>
#include <string>

namespace trainstone {

struct FilesOfRanks {
  std::int64_t ranks = 0;       ///< that have a file
  std::int64_t rings = 0;       ///< of those, with io_uring; the others call pread and pwrite
  std::int64_t direct = 0;      ///< of those, past the system's cache
  std::string folder = {};      ///< the first rank's
  std::string why_no_ring = {}; ///< of the first rank; empty: it has one, has no file, or was not asked to have one

  bool operator==(FilesOfRanks const&) const = default;
};

/// "in /tmp by io_uring, past the system's cache", with the numbers of ranks where they differ.
std::string to_string(FilesOfRanks const& files);

} // namespace trainstone
