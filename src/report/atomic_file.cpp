#include "report/atomic_file.hpp"

#include "core/error.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace trainstone {

void write_file_atomically(std::string const& path, std::string const& text) {
  std::string const temporary = fmt::format("{}.{}.tmp", path, getpid());
  errno = 0;
  std::ofstream file(temporary, std::ios::binary);
  file << text;
  file.close();
  if (file.good() && std::rename(temporary.c_str(), path.c_str()) == 0) return;
  std::string const reason = errno != 0 ? std::strerror(errno) : "unknown reason";
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  throw Error(fmt::format("cannot write {}: {}", path, reason));
}

void require_writable(std::string const& path) {
  std::error_code ignored;
  std::filesystem::path const file(path);
  TRAINSTONE_REQUIRE_INPUT(file.has_filename() && !std::filesystem::is_directory(file, ignored),
                           "{}: is a folder, must be a file to write", path);
  std::filesystem::path folder = file.parent_path();
  while (!folder.empty() && !std::filesystem::exists(folder, ignored)) folder = folder.parent_path();
  try {
    std::string const probe = (folder / ".trainstone-probe").string();
    write_file_atomically(probe, "");
    std::filesystem::remove(probe);
  } catch (std::exception const& failure) {
    throw InputError(fmt::format("{}: {}", path, failure.what()));
  }
}

} // namespace trainstone
