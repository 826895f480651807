#pragma once

// A file for data that outgrow memory, for as long as the process lives. Owns the file. Promises: it has no name, so
// nothing of it is left when the process ends, however it ends; its room is reserved when it is made, so that a full
// disk is found then; a problem throws Error with the folder and the system's reason. POSIX alone.

#include "core/residence.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace trainstone {

class ScratchFile {
public:
  /// \param[in] folder  empty: the system's folder for such files ($TMPDIR, or /tmp)
  /// \throws InputError if the folder is none, or cannot do what `direct` asks for
  /// \throws Error      if there is no room for so many bytes
  ScratchFile(std::filesystem::path const& folder, std::uint64_t bytes, DirectIo direct);
  ScratchFile(ScratchFile const&) = delete;
  ScratchFile& operator=(ScratchFile const&) = delete;
  ~ScratchFile();

  /// All of `out`. \throws Error if the file cannot be read, or was cut, also if writes have made it longer since
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  void write(std::uint64_t offset, std::span<std::byte const> bytes);

  /// Whether reads and writes pass by the system's cache.
  bool is_direct() const { return m_direct; }
  /// How messages call it: its folder.
  std::string const& shown() const { return m_shown; }

private:
  /// A hole where a file was cut reads as zeros, so every read asks this when it has its bytes.
  void require_whole() const;

  std::string m_shown;
  std::uint64_t m_size = 0;
  int m_file = -1;
  bool m_direct = false;
};

} // namespace trainstone
