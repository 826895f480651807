#pragma once

// A folder that one process at a time works in. The lock is the system's: it goes with the process, however that ends,
// so that nothing which a killed process leaves keeps the next one out.

#include <filesystem>
#include <string>
#include <string_view>

namespace trainstone {

class FolderLock {
public:
  /// Makes the folder, and in it the file that is locked. \param[in] file  its name: on one folder, locks of other
  /// names are others \param[in] whose  the folder is, in messages: "checkpoint.dir"
  /// \throws InputError if another process has the lock; Error if the file cannot be made. Where the file system knows
  /// no locks nobody has it.
  FolderLock(std::filesystem::path const& folder, std::string_view file, std::string const& whose);
  FolderLock(FolderLock&& other) noexcept { swap(other); }
  FolderLock& operator=(FolderLock&& other) noexcept {
    swap(other);
    return *this;
  }
  ~FolderLock(); ///< removes the file

private:
  void swap(FolderLock& other) noexcept;
  bool lock_file(); ///< false if another process has it
  bool is_still_there() const;

  std::filesystem::path m_path;
  int m_file = -1;
  bool m_is_own = false; ///< the file is this user's
};

} // namespace trainstone
