#pragma once

// Files that are on the medium when a call returns, and whose content is known by its hash. POSIX alone; knows nothing
// of what files mean. Promises: every problem throws Error with the file's name and the system's reason; a new file is
// never written through a link that somebody else has put there.

#include "core/index.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace trainstone {

namespace Impl {
class StreamHash;
}

/// What a file holds: its size, and XXH3 (64 bits) of its bytes.
struct FileDigest {
  std::uint64_t bytes = 0;
  std::uint64_t hash = 0;
  bool operator==(FileDigest const&) const = default;
};

/// A new file.
class DurableOutput {
public:
  /// \param[in] shown  the name in messages; empty: the path
  /// \throws Error if the file is there already, or cannot be made
  explicit DurableOutput(std::filesystem::path path, std::string shown = {});
  DurableOutput(DurableOutput const&) = delete;
  DurableOutput& operator=(DurableOutput const&) = delete;
  ~DurableOutput();

  std::filesystem::path const& path() const { return m_path; }
  /// Writes behind all that write() has written before.
  void write(std::span<std::byte const> bytes);
  /// Writes anywhere. These bytes are not in the digest.
  void write_at(std::uint64_t offset, std::span<std::byte const> bytes);
  /// Returns when all of the file is on the medium. The digest is that of the bytes of write().
  FileDigest finish();

private:
  std::filesystem::path m_path;
  std::string m_shown;
  int m_file;
  std::uint64_t m_bytes = 0;
  std::unique_ptr<Impl::StreamHash> m_hash;
};

/// A file that is read at given offsets.
class FileInput {
public:
  explicit FileInput(std::filesystem::path path);
  FileInput(FileInput const&) = delete;
  FileInput& operator=(FileInput const&) = delete;
  ~FileInput();
  /// Fills `out`. \throws Error where the file ends before
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  /// At most out.size() bytes; none at the end of the file.
  std::size_t read_some(std::uint64_t offset, std::span<std::byte> out) const;

private:
  std::filesystem::path m_path;
  int m_file;
};

/// Reads the file once, in little memory.
FileDigest digest_of(std::filesystem::path const& path);

/// Files that were made, renamed or removed in this folder are so on the medium, too.
void make_durable(std::filesystem::path const& folder);

} // namespace trainstone
