#include "core/durable_file.hpp"

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <xxhash.h>

#include <algorithm>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace fs = std::filesystem;

TEST_CASE("a durable file has the digest of its bytes, and is read at any place", "[files]") {
  TemporaryFolder const temporary;
  fs::path const path = fs::path(temporary.path()) / "numbers";
  std::vector<std::byte> bytes(3 << 20);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 3);
  DurableOutput output(path);
  std::span<std::byte const> const all(bytes);
  output.write(all.first(1));
  output.write({});
  output.write(all.subspan(1));
  FileDigest const digest = output.finish();
  CHECK(digest == FileDigest{bytes.size(), XXH3_64bits(bytes.data(), bytes.size())});
  CHECK(digest_of(path) == digest);

  std::vector<std::byte> part(1000);
  FileInput const input(path);
  input.read(2000000, part);
  CHECK(std::equal(part.begin(), part.end(), bytes.begin() + 2000000));
  CHECK_THAT(error_of([&] { input.read(bytes.size() - 999, part); }), ContainsSubstring("numbers: ends at byte"));
  CHECK_THAT(error_of([&] { DurableOutput again(path); }), ContainsSubstring("numbers: cannot write: File exists"));
  CHECK_THAT(error_of([&] { FileInput missing(fs::path(temporary.path()) / "no"); }),
             ContainsSubstring("No such file"));
}

TEST_CASE("a durable file is written at any place, too, and messages have the name that is shown", "[files]") {
  TemporaryFolder const temporary;
  fs::path const path = fs::path(temporary.path()) / "numbers";
  DurableOutput output(path, "shown");
  std::vector<std::byte> const two{std::byte{7}, std::byte{9}};
  output.write_at(3, two);
  output.write_at(0, two);
  CHECK(output.finish().bytes == 0);
  std::vector<std::byte> all(5);
  FileInput(path).read(0, all);
  CHECK(all == std::vector<std::byte>{two[0], two[1], std::byte{0}, two[0], two[1]});
  CHECK(error_of([&] { DurableOutput again(path, "shown"); }) == "shown: cannot write: File exists");
}

TEST_CASE("a new file is not written through a link", "[files]") {
  TemporaryFolder const temporary;
  fs::path const folder = temporary.path();
  fs::create_symlink(folder / "victim", folder / "link");
  CHECK_THAT(error_of([&] { DurableOutput output(folder / "link"); }), ContainsSubstring("File exists"));
  CHECK(!fs::exists(folder / "victim"));
}
