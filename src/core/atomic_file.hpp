#pragma once

// Files that readers see whole or not at all. The one way in which the program writes a file that is not a part of a
// checkpoint. Promises: a file has its name only when all of it is on the medium; before that, the file has another
// name in the same folder, which no other process can know or use; nothing stays behind on failure.

#include "core/durable_file.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace trainstone {

/// A file that is being written. Several processes may write one path at a time: the file of the last process to commit
/// stays.
class AtomicFile {
public:
  /// \throws Error with the path and the system's reason, as all that follows
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(AtomicFile const&) = delete;
  AtomicFile& operator=(AtomicFile const&) = delete;
  ~AtomicFile(); ///< removes what was not committed

  /// Writes behind all that write() has written before.
  void write(std::span<std::byte const> bytes) { m_output.write(bytes); }
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void write_at(std::uint64_t offset, std::span<std::byte const> bytes) { m_output.write_at(offset, bytes); }
  /// Gives the file its name, replacing an older one.
  void commit();

private:
  std::filesystem::path m_path;
  DurableOutput m_output;
  bool m_committed = false;
};

/// Writes `text` as an AtomicFile. \throws Error
void write_file_atomically(std::filesystem::path const& path, std::string_view text);

/// The same in a folder that is made if it is missing. \throws Error
void write_file_in_folder(std::filesystem::path const& path, std::string_view text);

/// Proves that a file can be written at the path: writes one and removes it. Missing folders may be made later. For
/// paths that a run writes at its end. \throws InputError
void require_writable(std::filesystem::path const& path);

/// The folder that the file is to lie in, which is made if it is missing. \throws Error
void make_folder_of(std::filesystem::path const& path);

} // namespace trainstone
