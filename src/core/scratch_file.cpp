#include "core/scratch_file.hpp"

#include "core/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

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

ScratchFile::Descriptor::~Descriptor() {
  if (number >= 0) ::close(number);
}

ScratchFile::ScratchFile(FileSettings const& settings, std::uint64_t bytes)
    : m_folder(settings.folder.empty() ? fs::temp_directory_path().string() : settings.folder), m_size(bytes + tail) {
  open(settings.direct_io);
  choose_transfers(settings.io_engine);
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(m_file.number, 0, static_cast<off_t>(m_size));
  if (error != 0) throw Error(fmt::format("{}: no room for {} bytes: {}", shown(), bytes, reason(error)));
}

std::string ScratchFile::shown() const { return fmt::format("file without a name in {}", m_folder); }

void ScratchFile::open(DirectIo direct) {
  TRAINSTONE_REQUIRE_INPUT(fs::is_directory(m_folder), "memory.folder = \"{}\" is no folder", m_folder);
  if (direct != DirectIo::off) m_file.number = open_unnamed(m_folder, O_DIRECT);
  m_direct = m_file.number >= 0;
  TRAINSTONE_REQUIRE_INPUT(
      m_direct || direct != DirectIo::on,
      "memory.direct_io = \"on\": {} is on a file system without direct access ({}); nearest legal "
      "values: auto, off",
      m_folder, reason(errno));
  if (!m_direct) m_file.number = open_unnamed(m_folder, 0);
  TRAINSTONE_REQUIRE_INPUT(m_file.number >= 0, "memory.folder = \"{}\": cannot make a file there: {}", m_folder,
                           reason(errno));
}

void ScratchFile::choose_transfers(IoEngine asked) {
  if (asked != IoEngine::psync) m_transfers = make_ring(m_file.number, m_why_no_ring);
  m_has_ring = m_transfers != nullptr;
  TRAINSTONE_REQUIRE_INPUT(m_has_ring || asked != IoEngine::io_uring,
                           "memory.io_engine = \"io_uring\": {}; nearest legal values: auto, psync", m_why_no_ring);
  if (!m_has_ring) m_transfers = make_calls(m_file.number);
}

void ScratchFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (auto const stop = m_transfers->read(offset, out)) fail("read", *stop);
  require_whole();
}

void ScratchFile::write(std::uint64_t offset, std::span<std::byte const> bytes) {
  if (auto const stop = m_transfers->write(offset, bytes)) fail("write", *stop);
}

void ScratchFile::fail(std::string_view what, FileTransfers::Stop const& stop) const {
  if (stop.error == 0) throw Error(fmt::format("{}: ends at byte {}, and was longer", shown(), stop.at));
  throw Error(fmt::format("{}: cannot {} at byte {}: {}", shown(), what, stop.at, reason(stop.error)));
}

void ScratchFile::require_whole() const {
  struct stat found = {};
  if (::fstat(m_file.number, &found) != 0)
    throw Error(fmt::format("{}: cannot ask its size: {}", shown(), reason(errno)));
  auto const size = static_cast<std::uint64_t>(found.st_size);
  if (size < m_size) throw Error(fmt::format("{}: ends at byte {}, and was longer", shown(), size));
}

} // namespace trainstone
