#include "core/scratch_file.hpp"

#include "core/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace trainstone {

namespace {

namespace fs = std::filesystem;

std::string reason(int error) { return std::strerror(error); }

/// A file without a name, or -1. File systems that cannot make one have a name removed at once.
int open_unnamed(fs::path const& folder, int flags) {
  int const file = ::open(folder.c_str(), flags | O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return file;
  std::string name = (folder / "trainstone-XXXXXX").string();
  int const named = ::mkostemp(name.data(), flags | O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

/// Bytes behind the data. They are never written, so a file that was cut stays shorter than it was, also where later
/// writes make it longer again.
constexpr std::uint64_t tail = 4096;

} // namespace

ScratchFile::ScratchFile(fs::path const& folder, std::uint64_t bytes, DirectIo direct) {
  fs::path const place = folder.empty() ? fs::temp_directory_path() : folder;
  m_shown = fmt::format("file without a name in {}", place.string());
  TRAINSTONE_REQUIRE_INPUT(fs::is_directory(place), "memory.folder = \"{}\" is no folder", place.string());
  if (direct != DirectIo::off) m_file = open_unnamed(place, O_DIRECT);
  m_direct = m_file >= 0;
  TRAINSTONE_REQUIRE_INPUT(
      m_direct || direct != DirectIo::on,
      "memory.direct_io = \"on\": {} is on a file system without direct access ({}); nearest legal "
      "values: auto, off",
      place.string(), reason(errno));
  if (m_file < 0) m_file = open_unnamed(place, 0);
  TRAINSTONE_REQUIRE_INPUT(m_file >= 0, "memory.folder = \"{}\": cannot make a file there: {}", place.string(),
                           reason(errno));
  m_size = bytes + tail;
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(m_file, 0, static_cast<off_t>(m_size));
  if (error == 0) return;
  ::close(m_file);
  throw Error(fmt::format("{}: no room for {} bytes: {}", m_shown, bytes, reason(error)));
}

ScratchFile::~ScratchFile() { ::close(m_file); }

void ScratchFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    ssize_t const got = ::pread(m_file, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(fmt::format("{}: cannot read at byte {}: {}", m_shown, offset, reason(errno)));
    if (got == 0) throw Error(fmt::format("{}: ends at byte {}, and was longer", m_shown, offset));
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
  require_whole();
}

void ScratchFile::write(std::uint64_t offset, std::span<std::byte const> bytes) {
  while (!bytes.empty()) {
    ssize_t const written = ::pwrite(m_file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw Error(fmt::format("{}: cannot write at byte {}: {}", m_shown, offset, reason(errno)));
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void ScratchFile::require_whole() const {
  struct stat found = {};
  if (::fstat(m_file, &found) != 0) throw Error(fmt::format("{}: cannot ask its size: {}", m_shown, reason(errno)));
  auto const size = static_cast<std::uint64_t>(found.st_size);
  if (size < m_size) throw Error(fmt::format("{}: ends at byte {}, and was longer", m_shown, size));
}

} // namespace trainstone
