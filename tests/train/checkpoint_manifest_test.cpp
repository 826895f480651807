#include "core/atomic_file.hpp"
#include "core/error.hpp"
#include "support/temporary_folder.hpp"
#include "train/checkpoint/folder.hpp"
#include "train/checkpoint/manifest.hpp"
#include "train/checkpoint/stored_checkpoint.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using trainstone::test::TemporaryFolder;

namespace {

CheckpointManifest small_manifest() {
  CheckpointManifest manifest;
  manifest.progress = {.step = 7,
                       .updates = 6,
                       .loss_scaler = {65536, 3, 0},
                       .losses = {0.1, 1.0 / 3, 5e-324, 2.5},
                       .restarts = 2,
                       .finished = true,
                       .early = {{1.0 / 7, 5e-324}, {0.25, 1.0 / 9}, 2}};
  manifest.identity = {{"data.seed", "1"}, {"data.files", "[\"a \\\"b\\\"\"]"}};
  manifest.written_by = "trainstone 0.1.0 git 1234";
  manifest.model = {1, 1, 1, 1, 128};
  manifest.groups = {{"token table", 128}, {"position table", 1}, {"final norm", 2}, {"block 0", 12 + 13}};
  manifest.vectors = 3;
  manifest.files = {
      {"rank-00000", {3 * 4 * (127 + 25), 0xfedcba9876543210}, {{0, {4, 128}}, {1, {0, 1}}, {2, {0, 2}}, {3, {0, 25}}}},
      {"rank-00001", {3 * 4 * 4, 1}, {{0, {0, 4}}}}};
  manifest.progress.acts = {{true, 1}, {false, 1}};
  return manifest;
}

/// The message of the InputError.
std::string refusal_of(std::string const& text) {
  try {
    read_manifest(text);
  } catch (InputError const& error) {
    return error.what();
  }
  return "accepted";
}

std::string refusal_of(CheckpointManifest const& manifest) { return refusal_of(to_text(manifest)); }

/// The text with the hash of what it holds now.
std::string with_its_hash(std::string const& content) {
  return fmt::format("trainstone checkpoint 5 {:016x}\n{}", XXH3_64bits(content.data(), content.size()), content);
}

/// Of the small manifest's text with some of it replaced.
std::string refusal_with(std::string const& old, std::string const& replacement) {
  std::string text = to_text(small_manifest());
  text.erase(0, text.find('\n') + 1);
  std::size_t const place = text.find(old);
  REQUIRE(place != std::string::npos);
  return refusal_of(with_its_hash(text.replace(place, old.size(), replacement)));
}

} // namespace

TEST_CASE("a manifest reads back as it was written, losses to the last bit", "[checkpoint]") {
  CHECK(read_manifest(to_text(small_manifest())) == small_manifest());
  CHECK(read_checkpoint_file(to_text(small_manifest().files[0])) == small_manifest().files[0]);
}

TEST_CASE("a training whose files have names that are no UTF-8 goes on from its checkpoint", "[checkpoint]") {
  CheckpointManifest manifest = small_manifest();
  manifest.identity.emplace_back("model.load", "mod\xe8le.bin");
  StoredCheckpoint const stored("kept", to_text(manifest));
  CHECK_NOTHROW(stored.require_identity(manifest.identity));
  manifest.identity.back().second = "module.bin";
  CHECK_THROWS_AS(stored.require_identity(manifest.identity), InputError);
}

TEST_CASE("a manifest with any other byte is refused, and one of any other length", "[checkpoint]") {
  std::string const text = to_text(small_manifest());
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (char const flip : {'\x01', '\x20', '\x80'}) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      CAPTURE(i, damaged[i]);
      CHECK(refusal_of(damaged) != "accepted");
    }
    CHECK(refusal_of(text.substr(0, i)) != "accepted");
  }
  CHECK_THAT(refusal_of(text + " "), ContainsSubstring("hash"));
  CHECK_THAT(refusal_of(""), ContainsSubstring("empty"));
  CHECK_THAT(refusal_of("{}"), ContainsSubstring("does not begin with"));
}

TEST_CASE("a manifest of another version is refused by that, whatever follows", "[checkpoint]") {
  CHECK(refusal_of("trainstone checkpoint 6 something else entirely") ==
        "the checkpoint has version 6, this program reads version 5");
  CHECK_THAT(refusal_of("trainstone checkpoint \n"), ContainsSubstring("has version ,"));
}

TEST_CASE("a manifest whose JSON lacks something is refused, although its hash is right", "[checkpoint]") {
  for (std::string const content : {"", "{", "{}\n", "[1]", "null", R"({"written_by": 3})"}) {
    CAPTURE(content);
    CHECK_THAT(refusal_of(with_its_hash(content)), ContainsSubstring("not readable"));
  }
}

TEST_CASE("files that do not hold every element exactly once are refused", "[checkpoint]") {
  CheckpointManifest missing = small_manifest();
  missing.files.pop_back();
  CHECK_THAT(refusal_of(missing), ContainsSubstring("group token table has elements [4, 128) after 0"));

  CheckpointManifest twice = small_manifest();
  twice.files.push_back(twice.files.back());
  twice.files.back().name = "rank-00002";
  CHECK_THAT(refusal_of(twice), ContainsSubstring("group token table has elements [0, 4) after 4"));

  CheckpointManifest shorter = small_manifest();
  shorter.files[0].parts[3].range.end = 24;
  CHECK_THAT(refusal_of(shorter), ContainsSubstring("group block 0 has 24 of 25 elements"));

  CheckpointManifest unknown = small_manifest();
  unknown.files[1].parts[0].group = 4;
  CHECK_THAT(refusal_of(unknown), ContainsSubstring("rank-00001 has group 4 of 4"));

  CheckpointManifest size = small_manifest();
  size.files[1].digest.bytes += 4;
  CHECK_THAT(refusal_of(size), ContainsSubstring("rank-00001 has 52 bytes, its parts have 48"));
}

TEST_CASE("runs of one part and of others cover a group together, each element once", "[checkpoint]") {
  // of 25 elements: 0, 1 and 2 of every five are one part, 3 and 4 another one
  auto const with_runs = [](CheckpointPart const& first, CheckpointPart const& second) {
    CheckpointManifest manifest = small_manifest();
    manifest.files[0].parts.back() = first;
    manifest.files[0].parts.push_back(second);
    return manifest;
  };
  CheckpointPart const left{3, {0, 3}, 5, 5}, right{3, {3, 5}, 5, 5};
  CheckpointManifest const manifest = with_runs(left, right);
  CHECK(refusal_of(manifest) == "accepted");
  CHECK(read_manifest(to_text(manifest)) == manifest);

  CHECK_THAT(refusal_of(with_runs(left, {3, {3, 5}, 4, 5})), ContainsSubstring("has 23 of 25 elements"));
  CHECK_THAT(refusal_of(with_runs(left, {3, {2, 4}, 5, 5})), ContainsSubstring("has elements [2, 4) after 3"));
  CHECK_THAT(refusal_of(with_runs({3, {0, 3}, 4, 5}, right)), ContainsSubstring("has elements [23, 25) after 20"));
  CHECK_THAT(refusal_of(with_runs(left, {3, {3, 5}, 6, 5})), ContainsSubstring("has 6 runs [3, 5), 5 apart"));
  CHECK_THAT(refusal_of(with_runs(left, {3, {3, 5}, 5, 1})), ContainsSubstring("has 5 runs [3, 5), 1 apart"));
  CHECK_THAT(refusal_of(with_runs(left, {3, {3, 5}, 2, std::numeric_limits<Index>::max()})),
             ContainsSubstring("has 2 runs [3, 5)"));
}

TEST_CASE("names that are not of files in the checkpoint's folder are refused, although the hash is right",
          "[checkpoint]") {
  std::vector<std::string> const names{"../x", "/etc/passwd", "a/b", "..", ".", "", "a/", std::string("a\0b", 3)};
  for (std::string const& name : names) {
    CheckpointManifest manifest = small_manifest();
    manifest.files[1].name = name;
    CAPTURE(name);
    CHECK_THAT(refusal_of(manifest), ContainsSubstring("no name of a file in the checkpoint's folder"));
  }
  for (std::string const name : {"rank-00000", "manifest"}) {
    CheckpointManifest manifest = small_manifest();
    manifest.files[1].name = name;
    CHECK_THAT(refusal_of(manifest), ContainsSubstring(name + " is there twice"));
  }
}

TEST_CASE("ranges whose sizes overflow when they are added are refused, although the hash is right", "[checkpoint]") {
  Index const most = std::numeric_limits<Index>::max();
  for (Range const range : {Range{4, most}, Range{most, most}, Range{most - 1, most}, Range{128, 4}}) {
    CheckpointManifest manifest = small_manifest();
    manifest.files[0].parts[0].range = range;
    manifest.files[0].parts.push_back({3, {0, most}});
    CAPTURE(range.begin, range.end);
    CHECK_THAT(refusal_of(manifest), ContainsSubstring("group "));
  }
  for (Index const least : {Index{-1}, std::numeric_limits<Index>::min()}) {
    CheckpointManifest manifest = small_manifest();
    manifest.files[0].parts[0].range.begin = least;
    CHECK_THAT(refusal_of(manifest), ContainsSubstring("in place of an integer from 0 to"));
  }
}

TEST_CASE("a number of vectors that no optimizer has is refused, although the hash is right", "[checkpoint]") {
  for (Index const vectors : {Index{0}, Index{-3}, Index{17}, Index{1} << 62, std::numeric_limits<Index>::max()}) {
    CheckpointManifest manifest = small_manifest();
    manifest.vectors = vectors;
    CHECK_THAT(refusal_of(manifest), ContainsSubstring("in place of an integer from 1 to 16"));
  }
}

TEST_CASE("a model that no deck could have, or of other groups, is refused, although the hash is right",
          "[checkpoint]") {
  for (Index const size : {Index{0}, Index{-1}, Index{1} << 40, std::numeric_limits<Index>::max()}) {
    for (auto const member :
         {&GptConfig::layers, &GptConfig::heads, &GptConfig::channels, &GptConfig::context, &GptConfig::vocab}) {
      CheckpointManifest manifest = small_manifest();
      manifest.model.*member = size;
      CHECK_THAT(refusal_of(manifest), ContainsSubstring("in place of an integer from 1 to"));
    }
  }
  CheckpointManifest heads = small_manifest();
  heads.model.heads = 2;
  CHECK_THAT(refusal_of(heads), ContainsSubstring("model.heads"));
  CheckpointManifest largest = small_manifest();
  largest.model = largest_gpt;
  CHECK_THAT(refusal_of(largest), ContainsSubstring("its groups are not those of its model"));
  CheckpointManifest groups = small_manifest();
  groups.groups[3].size = 26;
  CHECK_THAT(refusal_of(groups), ContainsSubstring("its groups are not those of its model"));
}

TEST_CASE("numbers that are no integers are refused, although the hash is right", "[checkpoint]") {
  for (std::string const wrong : {"1e300", "7.5", "-1", "18446744073709551615", "\"7\"", "null", "[7]", "true"}) {
    CAPTURE(wrong);
    CHECK_THAT(refusal_with("\"step\": 7", "\"step\": " + wrong), ContainsSubstring("in place of an integer from 0"));
    if (wrong != "18446744073709551615")
      CHECK_THAT(refusal_with("\"bytes\": 48", "\"bytes\": " + wrong), ContainsSubstring("in place of an amount"));
  }
  CHECK_THAT(refusal_with("\"bytes\": 48", "\"bytes\": 18446744073709551615"), ContainsSubstring("its parts have 48"));
}

TEST_CASE("lists in lists are refused before they fill the memory, although the hash is right", "[checkpoint]") {
  CHECK_THAT(refusal_of(with_its_hash(std::string(1000000, '['))), ContainsSubstring("lists in each other"));
}

TEST_CASE("a manifest that is no file, or too large for one, is refused and not read", "[checkpoint]") {
  TemporaryFolder const folder;
  std::filesystem::path const path = std::filesystem::path(folder.path()) / manifest_name;
  auto const refusal = [&] {
    try {
      read_manifest_text(folder.path());
    } catch (InputError const& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  CHECK_THAT(refusal(), ContainsSubstring(folder.path() + ": there is no manifest"));
  std::filesystem::create_directory(path);
  CHECK_THAT(refusal(), ContainsSubstring(folder.path() + ": its manifest is no file"));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  CHECK_THAT(refusal(), ContainsSubstring("its manifest is no file"));
  std::filesystem::remove(path);
  write_file_atomically(path, "");
  CHECK(refusal() == "read");
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40); // a hole
  CHECK_THAT(refusal(), ContainsSubstring("the manifest has 1099511627776 bytes, more than 1073741824"));
}
