#pragma once

// A folder in which one process at a time works. The lock is a lock of the operating system. The system releases it
// when the process ends, for whatever reason, so the files of a killed process do not keep the next process out.

#include <filesystem>
#include <string>
#include <string_view>

namespace trainstone {

class FolderLock {
public:
  /// Makes the folder and the locked file in it.
  /// \param[in] file   name of that file; locks with different names are independent
  /// \param[in] whose  the key that names the folder, for messages: "checkpoint.dir"
  /// \throws InputError if another process has the lock; Error if the file cannot be made. If the file system has no
  /// locks, nothing is locked.
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
