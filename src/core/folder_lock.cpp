#include "core/folder_lock.hpp"

#include "core/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace trainstone {

FolderLock::FolderLock(std::filesystem::path const& folder, std::string_view file, std::string const& whose)
    : m_path(folder / file) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem) throw Error(fmt::format("{}: {}", folder.string(), problem.message()));
  do { // whoever had it before may remove the file between its opening and its locking
    if (m_file >= 0) ::close(std::exchange(m_file, -1));
    if (lock_file()) continue;
    ::close(m_file);
    throw InputError(fmt::format("{} {}: another run works in it", whose, folder.string()));
  } while (!is_still_there());
}

FolderLock::~FolderLock() {
  if (m_file < 0) return;
  if (m_is_own) ::unlink(m_path.c_str());
  ::close(m_file);
}

bool FolderLock::lock_file() {
  constexpr int flags = O_CLOEXEC | O_NOFOLLOW;
  m_file = ::open(m_path.c_str(), O_RDWR | O_CREAT | flags, 0666);
  m_is_own = m_file >= 0;
  // another user's, who may be at work here
  if (m_file < 0 && errno == EACCES) m_file = ::open(m_path.c_str(), O_RDONLY | flags);
  if (m_file < 0) throw Error(fmt::format("{}: {}", m_path.string(), std::strerror(errno)));
  struct flock whole = {};
  whole.l_type = m_is_own ? F_WRLCK : F_RDLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(m_file, F_OFD_SETLK, &whole) == 0 || (errno != EAGAIN && errno != EACCES);
}

bool FolderLock::is_still_there() const {
  struct stat opened = {}, named = {};
  return ::fstat(m_file, &opened) == 0 && ::lstat(m_path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

void FolderLock::swap(FolderLock& other) noexcept {
  std::swap(m_path, other.m_path);
  std::swap(m_file, other.m_file);
  std::swap(m_is_own, other.m_is_own);
}

} // namespace trainstone
