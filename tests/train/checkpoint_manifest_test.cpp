#include "core/error.hpp"
#include "train/checkpoint/manifest.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <xxhash.h>

#include <limits>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

CheckpointManifest small_manifest() {
  CheckpointManifest manifest;
  manifest.progress = {.step = 7,
                       .updates = 6,
                       .loss_scaler = {65536, 3, 0},
                       .losses = {0.1, 1.0 / 3, 5e-324, 2.5},
                       .restarts = 2,
                       .finished = true};
  manifest.identity = {{"data.seed", "1"}, {"data.files", "[\"a \\\"b\\\"\"]"}};
  manifest.written_by = "trainstone 0.1.0 git 1234";
  manifest.model = {2, 3, 12, 11, 29};
  manifest.groups = {{"root", 10}, {"block 0", 5}};
  manifest.vectors = 3;
  manifest.files = {{"rank-00000", {3 * 4 * (6 + 5), 0xfedcba9876543210}, {{0, {4, 10}}, {1, {0, 5}}}},
                    {"rank-00001", {3 * 4 * 4, 1}, {{0, {0, 4}}}}};
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

} // namespace

TEST_CASE("a manifest reads back as it was written, losses to the last bit", "[checkpoint]") {
  CHECK(read_manifest(to_text(small_manifest())) == small_manifest());
  CHECK(read_checkpoint_file(to_text(small_manifest().files[0])) == small_manifest().files[0]);
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
  CHECK(refusal_of("trainstone checkpoint 2 something else entirely") ==
        "the checkpoint has version 2, this program reads version 1");
  CHECK_THAT(refusal_of("trainstone checkpoint \n"), ContainsSubstring("has version ,"));
}

TEST_CASE("a manifest whose JSON lacks something is refused, although its hash is right", "[checkpoint]") {
  for (std::string const content : {"", "{", "{}\n", "[1]", "null", R"({"written_by": 3})"}) {
    CAPTURE(content);
    std::string const hash = fmt::format("{:016x}", XXH3_64bits(content.data(), content.size()));
    CHECK_THAT(refusal_of("trainstone checkpoint 1 " + hash + "\n" + content), ContainsSubstring("not readable"));
  }
}

TEST_CASE("files that do not hold every element exactly once are refused", "[checkpoint]") {
  CheckpointManifest missing = small_manifest();
  missing.files.pop_back();
  CHECK_THAT(refusal_of(missing), ContainsSubstring("group root has elements [4, 10) after 0"));

  CheckpointManifest twice = small_manifest();
  twice.files.push_back(twice.files.back());
  CHECK_THAT(refusal_of(twice), ContainsSubstring("group root has elements [0, 4) after 4"));

  CheckpointManifest shorter = small_manifest();
  shorter.groups[1].size = 6;
  CHECK_THAT(refusal_of(shorter), ContainsSubstring("group block 0 has 5 of 6 elements"));

  CheckpointManifest unknown = small_manifest();
  unknown.files[1].parts[0].group = 2;
  CHECK_THAT(refusal_of(unknown), ContainsSubstring("rank-00001 has group 2 of 2"));

  CheckpointManifest size = small_manifest();
  size.files[1].digest.bytes += 4;
  CHECK_THAT(refusal_of(size), ContainsSubstring("rank-00001 has 52 bytes, its parts have 48"));
}
