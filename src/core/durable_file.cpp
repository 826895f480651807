#include "core/durable_file.hpp"

#include "core/error.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace trainstone {

namespace {

[[noreturn]] void fail(std::string const& name, char const* action) {
  throw Error(fmt::format("{}: cannot {}: {}", name, action, std::strerror(errno)));
}

/// Signals that ask for a checkpoint come while one is written.
template <class Call>
int uninterrupted(Call const& call) {
  int result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

int open_file(std::filesystem::path const& path, std::string const& shown, int flags, char const* action) {
  int const file = uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
  if (file < 0) fail(shown, action);
  return file;
}

} // namespace

class Impl::StreamHash {
public:
  StreamHash() { XXH3_64bits_reset(m_state); }
  StreamHash(StreamHash const&) = delete;
  StreamHash& operator=(StreamHash const&) = delete;
  ~StreamHash() { XXH3_freeState(m_state); }
  void add(std::span<std::byte const> bytes) { XXH3_64bits_update(m_state, bytes.data(), bytes.size()); }
  std::uint64_t value() const { return XXH3_64bits_digest(m_state); }

private:
  XXH3_state_t* m_state = XXH3_createState();
};

DurableOutput::DurableOutput(std::filesystem::path path, std::string shown)
    : m_path(std::move(path)),
      m_shown(shown.empty() ? m_path.string() : std::move(shown)),
      m_file(open_file(m_path, m_shown, O_WRONLY | O_CREAT | O_EXCL, "write")), // O_EXCL follows no link
      m_hash(std::make_unique<Impl::StreamHash>()) {}

DurableOutput::~DurableOutput() {
  if (m_file >= 0) ::close(m_file);
}

void DurableOutput::write(std::span<std::byte const> bytes) {
  m_hash->add(bytes);
  write_at(m_bytes, bytes);
  m_bytes += bytes.size();
}

void DurableOutput::write_at(std::uint64_t offset, std::span<std::byte const> bytes) {
  while (!bytes.empty()) {
    ssize_t const written = ::pwrite(m_file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno != EINTR) fail(m_shown, "write");
    if (written <= 0) continue;
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

FileDigest DurableOutput::finish() {
  if (uninterrupted([&] { return ::fsync(m_file); }) != 0) fail(m_shown, "bring it to the medium");
  if (::close(std::exchange(m_file, -1)) != 0 && errno != EINTR) fail(m_shown, "close");
  return {m_bytes, m_hash->value()};
}

FileInput::FileInput(std::filesystem::path path)
    : m_path(std::move(path)), m_file(open_file(m_path, m_path.string(), O_RDONLY, "read")) {}

FileInput::~FileInput() { ::close(m_file); }

std::size_t FileInput::read_some(std::uint64_t offset, std::span<std::byte> out) const {
  for (;;) {
    ssize_t const got = ::pread(m_file, out.data(), out.size(), static_cast<off_t>(offset));
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) fail(m_path.string(), "read");
  }
}

void FileInput::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    std::size_t const got = read_some(offset, out);
    if (got == 0) throw Error(fmt::format("{}: ends at byte {}", m_path.string(), offset));
    offset += got;
    out = out.subspan(got);
  }
}

FileDigest digest_of(std::filesystem::path const& path) {
  FileInput const input(path);
  Impl::StreamHash hash;
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  std::uint64_t bytes = 0;
  while (std::size_t const got = input.read_some(bytes, buffer)) {
    hash.add(std::span(buffer).first(got));
    bytes += got;
  }
  return {bytes, hash.value()};
}

void make_durable(std::filesystem::path const& folder) {
  int const file = open_file(folder, folder.string(), O_RDONLY | O_DIRECTORY, "open the folder");
  int const failed = uninterrupted([&] { return ::fsync(file); });
  int const reason = errno;
  ::close(file);
  // some network file systems cannot do it for folders, and need not
  bool const cannot = reason == EINVAL || reason == ENOTSUP || reason == ENOSYS || reason == EBADF || reason == EISDIR;
  if (failed != 0 && !cannot) {
    errno = reason;
    fail(folder.string(), "bring the folder to the medium");
  }
}

} // namespace trainstone
