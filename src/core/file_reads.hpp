#pragma once

// What reading files has cost.

#include <cstdint>

namespace trainstone {

struct FileReads {
  std::uint64_t bytes = 0;
  double seconds = 0;

  FileReads& operator+=(FileReads const& other) {
    bytes += other.bytes;
    seconds += other.seconds;
    return *this;
  }
};

} // namespace trainstone
