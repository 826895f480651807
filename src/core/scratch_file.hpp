#pragma once

// A file for data that outgrow memory, for as long as the process lives. Owns the file. Promises: it has no name, so
// nothing of it is left when the process ends, however it ends; its room is reserved when it is made, so that a full
// disk is found then; a problem throws Error with the folder and the system's reason. One thread at a time uses it.
// Does not move bytes itself (core/file_transfers.hpp).

#include "core/file_transfers.hpp"
#include "core/residence.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trainstone {

class ScratchFile {
public:
  /// \throws InputError if the folder ($TMPDIR or /tmp, if none is given) is none, or if it or the system cannot do
  ///                    what is asked for
  /// \throws Error      if there is no room for so many bytes
  ScratchFile(FileSettings const& settings, std::uint64_t bytes);

  /// All of `out`. \throws Error if the file cannot be read, or was cut, also if writes have made it longer since
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  void write(std::uint64_t offset, std::span<std::byte const> bytes);

  /// Whether reads and writes pass by the system's cache.
  bool is_direct() const { return m_direct; }
  /// Whether a ring makes its transfers.
  bool has_ring() const { return m_has_ring; }
  /// Empty: there is one, or none was asked for.
  std::string const& why_no_ring() const { return m_why_no_ring; }
  std::string const& folder() const { return m_folder; }

private:
  /// Closed with the object.
  struct Descriptor {
    Descriptor() = default;
    Descriptor(Descriptor const&) = delete;
    Descriptor& operator=(Descriptor const&) = delete;
    ~Descriptor();
    int number = -1;
  };

  /// How messages call it.
  std::string shown() const;
  void open(DirectIo direct);
  void choose_transfers(IoEngine asked);
  [[noreturn]] void fail(std::string_view what, FileTransfers::Stop const& stop) const;
  /// A hole where a file was cut reads as zeros, so every read asks this when it has its bytes.
  void require_whole() const;

  std::string m_folder;
  std::uint64_t m_size = 0;
  Descriptor m_file;
  std::unique_ptr<FileTransfers> m_transfers;
  bool m_direct = false, m_has_ring = false;
  std::string m_why_no_ring;
};

} // namespace trainstone
