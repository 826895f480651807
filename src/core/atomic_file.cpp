#include "core/atomic_file.hpp"

#include "core/error.hpp"

#include <cstdint>
#include <random>
#include <system_error>
#include <utility>

namespace trainstone {

namespace {

namespace fs = std::filesystem;

/// "result.json.0123456789abcdef.tmp" in the same folder: people see what it was to become, and nobody can guess it.
fs::path temporary_name(fs::path const& path) {
  constexpr std::size_t longest = 200; // file systems end at 255 bytes
  std::random_device random;
  std::uint64_t const number = std::uint64_t{random()} << 32 | random();
  return path.parent_path() / fmt::format("{}.{:016x}.tmp", path.filename().string().substr(0, longest), number);
}

fs::path folder_of(fs::path const& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

} // namespace

AtomicFile::AtomicFile(fs::path path) : m_path(std::move(path)), m_output(temporary_name(m_path), m_path.string()) {}

AtomicFile::~AtomicFile() {
  std::error_code ignored; // nothing more can be done here
  if (!m_committed) fs::remove(m_output.path(), ignored);
}

void AtomicFile::commit() {
  m_output.finish();
  std::error_code problem;
  fs::rename(m_output.path(), m_path, problem);
  if (problem) throw Error(fmt::format("{}: cannot write: {}", m_path.string(), problem.message()));
  m_committed = true;
  make_durable(folder_of(m_path));
}

void write_file_atomically(fs::path const& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void require_writable(fs::path const& path) {
  std::error_code ignored;
  fs::file_status const found = fs::status(path, ignored);
  TRAINSTONE_REQUIRE_INPUT(path.has_filename() && !fs::is_directory(found), "{}: is a folder, must be a file to write",
                           path.string());
  TRAINSTONE_REQUIRE_INPUT(!fs::exists(found) || fs::is_regular_file(found),
                           "{}: is a device or the like, which a file would replace; must be a file to write",
                           path.string());
  fs::path folder = path.parent_path();
  while (!folder.empty() && !fs::exists(folder, ignored)) folder = folder.parent_path();
  fs::path const probe = temporary_name(folder / path.filename());
  try {
    DurableOutput const file(probe, path.string());
  } catch (Error const& failure) {
    throw InputError(failure.what());
  }
  fs::remove(probe, ignored);
}

void make_folder_of(fs::path const& path) {
  std::error_code problem;
  fs::create_directories(folder_of(path), problem);
  if (problem) throw Error(fmt::format("{}: cannot make its folder: {}", path.string(), problem.message()));
}

void write_file_in_folder(fs::path const& path, std::string_view text) {
  make_folder_of(path);
  write_file_atomically(path, text);
}

} // namespace trainstone
