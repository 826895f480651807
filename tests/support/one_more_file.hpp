#pragma once

// This process may open one more file, and no other, for as long as this object lives.

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <stdexcept>

namespace trainstone::test {

class OneMoreFile {
public:
  OneMoreFile() {
    int const next = ::open("/dev/null", O_RDONLY | O_CLOEXEC); // the smallest number that is free
    if (next < 0 || getrlimit(RLIMIT_NOFILE, &m_before) != 0) throw std::runtime_error("no limit of open files");
    ::close(next);
    rlimit const limited{static_cast<rlim_t>(next) + 1, m_before.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &limited) != 0) throw std::runtime_error("open files cannot be limited");
  }
  OneMoreFile(OneMoreFile const&) = delete;
  OneMoreFile& operator=(OneMoreFile const&) = delete;
  ~OneMoreFile() { setrlimit(RLIMIT_NOFILE, &m_before); }

private:
  rlimit m_before{};
};

} // namespace trainstone::test
