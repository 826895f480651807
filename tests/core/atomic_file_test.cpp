#include "core/atomic_file.hpp"

#include "support/errors.hpp"
#include "support/file_size_limit.hpp"
#include "support/file_text.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <sys/stat.h>

#include <memory>
#include <set>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

namespace fs = std::filesystem;

} // namespace

TEST_CASE("two that write one file at a time do not mix what they write", "[files]") {
  TemporaryFolder const folder;
  fs::path const path = fs::path(folder.path()) / "model.bin";
  std::string const ones(100000, '1'), twos(70000, '2');
  AtomicFile first(path), second(path);
  for (std::size_t i = 0; i < 10; ++i) {
    first.write(ones.substr(i * 10000, 10000));
    second.write(twos.substr(i * 7000, 7000));
  }
  CHECK(folder.files().size() == 2);
  first.commit();
  CHECK(file_text(path) == ones);
  second.commit();
  CHECK(file_text(path) == twos);
  CHECK(folder.files() == std::vector<std::string>{"model.bin"});
}

TEST_CASE("an unfinished file has a name that nobody can guess, and tells what it was to become", "[files]") {
  TemporaryFolder const folder;
  std::set<std::string> names;
  for (int i = 0; i < 100; ++i) {
    AtomicFile const file(fs::path(folder.path()) / "result.json");
    REQUIRE(folder.files().size() == 1);
    CHECK_THAT(folder.files()[0], StartsWith("result.json."));
    names.insert(folder.files()[0]);
  }
  CHECK(names.size() == 100);
  CHECK(folder.files().empty());
  AtomicFile const longest(fs::path(folder.path()) / std::string(255, 'x'));
}

TEST_CASE("a file that was not committed leaves nothing and spares the older one", "[files]") {
  TemporaryFolder const folder;
  fs::path const path = fs::path(folder.path()) / "file";
  write_file_atomically(path, "older");
  {
    AtomicFile file(path);
    file.write("newer");
  }
  CHECK(file_text(path) == "older");
  CHECK(folder.files() == std::vector<std::string>{"file"});
}

TEST_CASE("a link that lies under the file's name is replaced, and what it points to is spared", "[files]") {
  TemporaryFolder const folder;
  fs::path const place = folder.path();
  write_file_atomically(place / "victim", "mine");
  fs::create_symlink(place / "victim", place / "file");
  write_file_atomically(place / "file", "written");
  CHECK(file_text(place / "victim") == "mine");
  CHECK(file_text(place / "file") == "written");
  CHECK(!fs::is_symlink(place / "file"));
}

TEST_CASE("a full disk is an error with the file's name and leaves nothing", "[files]") {
  TemporaryFolder const folder;
  fs::path const path = fs::path(folder.path()) / "file";
  FileSizeLimit const limit(1000);
  AtomicFile file(path);
  file.write(std::string(1000, 'x'));
  CHECK_THAT(error_of([&] { file.write("y"); }), StartsWith(path.string() + ": cannot write: "));
  CHECK_THAT(error_of([&] { write_file_atomically(path, std::string(1001, 'x')); }),
             StartsWith(path.string() + ": cannot write: "));
  CHECK(folder.files().size() == 1); // of `file`, which lives
}

TEST_CASE("a file whose name is taken by a folder is not written and leaves nothing", "[files]") {
  TemporaryFolder const folder;
  fs::create_directory(fs::path(folder.path()) / "file");
  CHECK_THAT(error_of([&] { write_file_atomically(fs::path(folder.path()) / "file", "x"); }),
             ContainsSubstring("file: cannot write: Is a directory"));
  CHECK(folder.files() == std::vector<std::string>{"file"});
}

TEST_CASE("whether a file can be written is found out without a trace", "[files]") {
  TemporaryFolder const folder;
  fs::path const place = folder.path();
  write_file_atomically(place / "file", "older");
  require_writable(place / "file");
  require_writable(place / "new");
  require_writable(place / "folders" / "made" / "later");
  CHECK(folder.files() == std::vector<std::string>{"file"});
  CHECK(file_text(place / "file") == "older");
  CHECK(error_of<InputError>([&] { require_writable(place / "file" / "below"); }) ==
        (place / "file" / "below").string() + ": cannot write: Not a directory");
  CHECK_THAT(error_of<InputError>([&] { require_writable(place); }), ContainsSubstring("is a folder"));
  CHECK_THAT(error_of<InputError>([&] { require_writable("/dev/null"); }), ContainsSubstring("is a device"));
  REQUIRE(mkfifo((place / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(error_of<InputError>([&] { require_writable(place / "pipe"); }), ContainsSubstring("is a device"));
}

TEST_CASE("the folder of a file is made with its parents", "[files]") {
  TemporaryFolder const folder;
  make_folder_of(fs::path(folder.path()) / "a" / "b" / "file");
  make_folder_of("file");
  CHECK(folder.files() == std::vector<std::string>{"a", "a/b"});
  write_file_atomically(fs::path(folder.path()) / "a" / "b" / "file", "x");
  write_file_in_folder(fs::path(folder.path()) / "c" / "file", "y");
  CHECK(folder.files() == std::vector<std::string>{"a", "a/b", "a/b/file", "c", "c/file"});
  CHECK_THAT(error_of([&] { make_folder_of(fs::path(folder.path()) / "a" / "b" / "file" / "c" / "d"); }),
             ContainsSubstring("cannot make its folder"));
}
