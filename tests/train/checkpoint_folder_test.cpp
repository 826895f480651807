#include "support/errors.hpp"
#include "support/temporary_folder.hpp"
#include "train/checkpoint/folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <fstream>
#include <set>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace {

namespace fs = std::filesystem;

std::string write_one(fs::path const& folder, std::int64_t step) {
  UnfinishedCheckpoint unfinished(folder, step);
  std::ofstream(unfinished.path() / manifest_name) << step;
  return unfinished.finish();
}

std::set<std::string> everything_in(fs::path const& folder) {
  std::set<std::string> names;
  for (fs::directory_entry const& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

} // namespace

TEST_CASE("checkpoints are listed newest first, and nothing else is", "[checkpoint]") {
  TemporaryFolder const temporary;
  fs::path const folder = fs::path(temporary.path()) / "not" / "there";
  CHECK(checkpoints_in(folder).empty());
  for (std::int64_t const step : {5, 100000000, 20, 5, 5}) write_one(folder, step);
  fs::create_directories(folder / "step-5");
  fs::create_directories(folder / "step-00000006x");
  fs::create_directories(folder / "step-00000006.");
  std::ofstream(folder / "notes.txt") << "mine";
  CHECK(checkpoints_in(folder) == std::vector<std::string>{"step-100000000", "step-00000020", "step-00000005.3",
                                                           "step-00000005.2", "step-00000005"});
}

TEST_CASE("a checkpoint has no name before it is finished, and what was left unfinished goes", "[checkpoint]") {
  TemporaryFolder const temporary;
  {
    UnfinishedCheckpoint const failed(temporary.path(), 3);
    std::ofstream(failed.path() / "rank-00000") << "half of it";
    CHECK(checkpoints_in(temporary.path()).empty());
    CHECK(everything_in(temporary.path()) == std::set<std::string>{".step-00000003.unfinished"});
  }
  CHECK(everything_in(temporary.path()).empty());
  fs::create_directories(fs::path(temporary.path()) / ".step-00000003.unfinished" / "x"); // of a run that was killed
  fs::create_directories(fs::path(temporary.path()) / ".step-00000001.removed" / "x");
  CHECK(write_one(temporary.path(), 4) == "step-00000004");
  CHECK(everything_in(temporary.path()) == std::set<std::string>{"step-00000004"});
}

TEST_CASE("all but the newest checkpoints of a list are removed", "[checkpoint]") {
  TemporaryFolder const temporary;
  for (std::int64_t const step : {1, 2, 3, 4}) write_one(temporary.path(), step);
  CHECK(remove_older_checkpoints(temporary.path(), {"step-00000004", "step-00000002", "step-00000001"}, 1).empty());
  CHECK(everything_in(temporary.path()) == std::set<std::string>{"step-00000004", "step-00000003"});
  CHECK(remove_older_checkpoints(temporary.path(), {"step-00000004", "step-00000003"}, 2).empty());
  std::vector<std::string> const problems =
      remove_older_checkpoints(temporary.path(), {"step-00000004", "step-00000002", "step-00000003"}, 1);
  CHECK(problems.size() == 1); // somebody else has removed it, and the rest goes on
  CHECK(everything_in(temporary.path()) == std::set<std::string>{"step-00000004"});
}

TEST_CASE("a folder that cannot be listed is not taken for an empty one", "[checkpoint]") {
  TemporaryFolder const temporary;
  std::ofstream(fs::path(temporary.path()) / "file") << "no folder";
  CHECK_THAT(error_of([&] { checkpoints_in(fs::path(temporary.path()) / "file"); }),
             ContainsSubstring("Not a directory"));
}

TEST_CASE("a folder that cannot be made is an error with its name", "[checkpoint]") {
  TemporaryFolder const temporary;
  std::ofstream(fs::path(temporary.path()) / "file") << "in the way";
  CHECK_THAT(error_of([&] { UnfinishedCheckpoint one(fs::path(temporary.path()) / "file" / "folder", 1); }),
             ContainsSubstring("Not a directory"));
}
