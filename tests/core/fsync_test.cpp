// What is on the medium when a file gets its name: the system's fsync is watched, and made to fail.

#include "core/atomic_file.hpp"

#include "support/errors.hpp"
#include "support/file_text.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

namespace {

namespace fs = std::filesystem;

/// What is called with the path of a file before it is brought to the medium, and returns the error that it ends with.
using Watch = std::function<int(fs::path const&)>;

Watch& watch() {
  static Watch instance;
  return instance;
}

class Watching {
public:
  explicit Watching(Watch on_fsync) { watch() = std::move(on_fsync); }
  Watching(Watching const&) = delete;
  Watching& operator=(Watching const&) = delete;
  ~Watching() { watch() = {}; }
};

} // namespace

/// In place of the system's, in the whole program.
extern "C" int fsync(int file) {
  if (watch()) {
    errno = watch()(fs::read_symlink(fmt::format("/proc/self/fd/{}", file)));
    if (errno != 0) return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, file));
}

TEST_CASE("a file is on the medium before it gets its name, and its folder afterwards", "[files]") {
  TemporaryFolder const temporary;
  fs::path const folder = fs::canonical(temporary.path()), path = folder / "file";
  write_file_atomically(path, "older");
  std::vector<fs::path> synced;
  Watching const watching([&](fs::path const& file) {
    synced.push_back(file);
    if (synced.size() == 1) {
      CHECK(file_text(file) == "newer");
      CHECK(file_text(path) == "older");
    } else {
      CHECK(file_text(path) == "newer");
      CHECK(temporary.files() == std::vector<std::string>{"file"});
    }
    return 0;
  });
  write_file_atomically(path, "newer");
  REQUIRE(synced.size() == 2);
  CHECK(synced[0].parent_path() == folder);
  CHECK_THAT(synced[0].filename().string(), StartsWith("file.") && EndsWith(".tmp"));
  CHECK(synced[1] == folder);
}

TEST_CASE("a file that the medium does not take is not written, spares the older one and leaves nothing", "[files]") {
  TemporaryFolder const temporary;
  fs::path const path = fs::canonical(temporary.path()) / "file";
  write_file_atomically(path, "older");
  Watching const watching([](fs::path const&) { return EIO; });
  CHECK_THAT(error_of([&] { write_file_atomically(path, "newer"); }),
             StartsWith(path.string() + ": cannot bring it to the medium: "));
  CHECK(file_text(path) == "older");
  CHECK(temporary.files() == std::vector<std::string>{"file"});
}

TEST_CASE("a folder that the medium does not take is an error, unless its file system cannot do it", "[files]") {
  TemporaryFolder const temporary;
  fs::path const folder = fs::canonical(temporary.path());
  int of_folder = EIO;
  Watching const watching([&](fs::path const& file) { return file == folder ? of_folder : 0; });
  CHECK_THAT(error_of([&] { write_file_atomically(folder / "file", "x"); }),
             StartsWith(folder.string() + ": cannot bring the folder to the medium: "));
  for (int const cannot : {EINVAL, ENOTSUP}) {
    of_folder = cannot;
    write_file_atomically(folder / "file", "x");
  }
}

TEST_CASE("a signal does not keep a file from the medium", "[files]") {
  TemporaryFolder const temporary;
  int calls = 0;
  Watching const watching([&](fs::path const&) { return ++calls % 2 == 1 ? EINTR : 0; });
  write_file_atomically(fs::path(temporary.path()) / "file", "x");
  CHECK(calls == 4); // twice for the file, twice for its folder
}
