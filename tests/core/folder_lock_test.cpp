#include "core/folder_lock.hpp"

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

namespace fs = std::filesystem;

std::optional<FolderLock> locked(std::string const& folder, std::string const& file = ".lock") {
  return FolderLock(folder, file, "--out");
}

std::string refusal(std::string const& folder) {
  return error_of<InputError>([&] { locked(folder); });
}

} // namespace

TEST_CASE("one at a time has a folder, and the next one when it has ended", "[files]") {
  TemporaryFolder const temporary;
  std::string const folder = temporary.path() + "/made/here";
  std::optional<FolderLock> first = locked(folder);
  CHECK(refusal(folder) == "--out " + folder + ": another run works in it");
  CHECK_NOTHROW(locked(folder, ".other")); // another lock
  std::optional<FolderLock> moved = std::move(first);
  CHECK(refusal(folder) != "nothing was thrown");
  first.reset();
  CHECK(refusal(folder) != "nothing was thrown");
  moved.reset();
  CHECK(refusal(folder) == "nothing was thrown");
  CHECK(temporary.files() == std::vector<std::string>{"made", "made/here"});
}

TEST_CASE("a killed process leaves nothing that keeps the next one out", "[files]") {
  TemporaryFolder const folder;
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  pid_t const child = fork();
  if (child == 0) {
    std::optional<FolderLock> const held = locked(folder.path());
    char const byte = 1;
    if (write(ready[1], &byte, 1) == 1) pause();
    _exit(1);
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  CHECK(refusal(folder.path()) != "nothing was thrown");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(refusal(folder.path()) == "nothing was thrown");
  close(ready[0]);
  close(ready[1]);
}

TEST_CASE("many that take and give back a folder never have it at a time", "[files]") {
  TemporaryFolder const folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    pid_t const child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    for (int taken = 0; taken < 200;) {
      try {
        std::optional<FolderLock> const held = locked(folder.path());
        if (mkdir((folder.path() + "/held").c_str(), 0700) != 0) _exit(1); // of another one that has it, too
        rmdir((folder.path() + "/held").c_str());
        ++taken;
      } catch (InputError const&) {
        usleep(10);
      }
    }
    _exit(0);
  }
  for (pid_t const child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  CHECK(folder.files().empty());
}

TEST_CASE("a lock is not made through a link, and an error of the system is none of the user", "[files]") {
  TemporaryFolder const folder;
  fs::create_symlink(fs::path(folder.path()) / "victim", fs::path(folder.path()) / ".lock");
  try {
    locked(folder.path());
    FAIL("nothing was thrown");
  } catch (Error const& error) {
    CHECK(error.code() == ExitCode::internal);
  }
  CHECK(!fs::exists(fs::path(folder.path()) / "victim"));
}
