#pragma once

// A disk that is full after so many bytes of a file, for as long as this object lives.

#include <sys/resource.h>

#include <csignal>
#include <stdexcept>

namespace trainstone::test {

class FileSizeLimit {
public:
  explicit FileSizeLimit(rlim_t bytes) : m_handler(std::signal(SIGXFSZ, SIG_IGN)) {
    if (getrlimit(RLIMIT_FSIZE, &m_before) != 0) throw std::runtime_error("no limit of file sizes");
    rlimit const limited{bytes, m_before.rlim_max};
    if (setrlimit(RLIMIT_FSIZE, &limited) != 0) throw std::runtime_error("the size of files cannot be limited");
  }
  FileSizeLimit(FileSizeLimit const&) = delete;
  FileSizeLimit& operator=(FileSizeLimit const&) = delete;
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &m_before);
    std::signal(SIGXFSZ, m_handler);
  }

private:
  rlimit m_before{};
  void (*m_handler)(int);
};

} // namespace trainstone::test
