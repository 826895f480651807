#pragma once

// Transfers between memory and an open file. Owns the two ways to make them: calls of pread and pwrite, and the
// system's rings (io_uring), which have several pieces of a transfer under way. Promises: a transfer of any length goes
// on until all bytes are moved, or until the file ends or the system refuses a part of it; then no part is under way
// any more. One thread at a time uses an object. Does not know what the file is called, and throws nothing. Sources:
// pread(2), io_uring(7).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace trainstone {

class FileTransfers {
public:
  /// Where a transfer has stopped: at the first byte of the file that was not moved.
  struct Stop {
    std::uint64_t at;
    int error; ///< the system's; 0: the file ends
    bool operator==(Stop const&) const = default;
  };

  virtual ~FileTransfers() = default;
  /// \return nothing if all bytes were moved
  virtual std::optional<Stop> read(std::uint64_t offset, std::span<std::byte> out) = 0;
  virtual std::optional<Stop> write(std::uint64_t offset, std::span<std::byte const> bytes) = 0;

protected:
  FileTransfers() = default;
  FileTransfers(FileTransfers const&) = delete;
  FileTransfers& operator=(FileTransfers const&) = delete;
};

/// \param[in] file  a descriptor that outlives the object
std::unique_ptr<FileTransfers> make_calls(int file);

/// Of a transfer by a ring.
struct RingPieces {
  std::uint64_t bytes = 1024 * 1024; ///< of each
  unsigned under_way = 16;           ///< at most, at a time
};

/// The ring has some KiB of memory of the system's, which no ledger counts.
/// \param[out] why_not  set if there is none
/// \return null if the build has no liburing, or if the system refuses, as many containers do
std::unique_ptr<FileTransfers> make_ring(int file, std::string& why_not, RingPieces pieces = {});

} // namespace trainstone
