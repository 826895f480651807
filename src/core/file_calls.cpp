#include "core/file_transfers.hpp"

#include <unistd.h>

#include <cerrno>

namespace trainstone {

namespace {

/// \param[in] move  (bytes that were moved) -> bytes that it moves, or what calls of the system return
template <class Move>
std::optional<FileTransfers::Stop> move_all(std::uint64_t offset, std::uint64_t bytes, Move const& move) {
  std::uint64_t done = 0;
  while (done < bytes) {
    ssize_t const moved = move(done);
    if (moved == 0) return FileTransfers::Stop{offset + done, 0};
    if (moved < 0 && errno != EINTR) return FileTransfers::Stop{offset + done, errno};
    if (moved > 0) done += static_cast<std::uint64_t>(moved);
  }
  return std::nullopt;
}

class Calls final : public FileTransfers {
public:
  explicit Calls(int file) : m_file(file) {}

  std::optional<Stop> read(std::uint64_t offset, std::span<std::byte> out) override {
    return move_all(offset, out.size(), [&](std::uint64_t done) {
      return ::pread(m_file, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    });
  }
  std::optional<Stop> write(std::uint64_t offset, std::span<std::byte const> bytes) override {
    return move_all(offset, bytes.size(), [&](std::uint64_t done) {
      return ::pwrite(m_file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    });
  }

private:
  int m_file;
};

} // namespace

std::unique_ptr<FileTransfers> make_calls(int file) { return std::make_unique<Calls>(file); }

} // namespace trainstone
