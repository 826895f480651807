#include "train/data/token_source.hpp"

#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <utility>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;

namespace {

/// A folder that goes with everything in it when the test ends.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "trainstone-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw Error("no temporary folder " + pattern);
    m_path = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(m_path); }
  TemporaryFolder(TemporaryFolder const&) = delete;
  TemporaryFolder& operator=(TemporaryFolder const&) = delete;

  std::string operator/(std::string const& name) const { return (m_path / name).string(); }

  std::string write(std::string const& name, std::string const& bytes) const {
    std::ofstream(*this / name, std::ios::binary) << bytes;
    return *this / name;
  }

private:
  std::filesystem::path m_path;
};

template <class T>
std::string as_bytes(std::vector<T> const& values) {
  return {reinterpret_cast<char const*>(values.data()), values.size() * sizeof(T)};
}

std::string shard_header(std::int32_t magic, std::int32_t version, std::int32_t tokens) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = tokens;
  return as_bytes(header);
}

template <class Stored>
std::string shard(std::vector<Stored> const& tokens) {
  bool const narrow = sizeof(Stored) == 2;
  return shard_header(narrow ? 20240520 : 20240801, narrow ? 1 : 7, static_cast<std::int32_t>(tokens.size())) +
         as_bytes(tokens);
}

std::vector<std::int32_t> read_tokens(TokenSource const& source, std::int64_t offset, std::int64_t count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count), -1);
  source.read(offset, tokens);
  return tokens;
}

/// The message of the InputError that opening and scanning one file ends in.
std::string refusal(std::string const& path, TokenFormat format, std::int64_t vocabulary = 256) {
  try {
    FileTokens const source({path}, format);
    source.scan(vocabulary);
  } catch (InputError const& error) {
    return error.what();
  }
  return "no InputError";
}

} // namespace

TEST_CASE("text is the bytes of all files, one after the other, 0 to 255") {
  TemporaryFolder const folder;
  std::string all_bytes(256, ' ');
  std::iota(all_bytes.begin(), all_bytes.end(), '\0');
  FileTokens const source({folder.write("a", "xy"), folder.write("b", all_bytes), folder.write("c", "z")},
                          TokenFormat::text);
  REQUIRE(source.size() == 259);
  std::vector<std::int32_t> expected = {'x', 'y'};
  for (int i = 0; i < 256; ++i) expected.push_back(i);
  expected.push_back('z');
  CHECK(read_tokens(source, 0, 259) == expected);
  for (std::int64_t const offset : {0, 1, 2, 257, 258}) {
    CAPTURE(offset);
    CHECK(read_tokens(source, offset, 1).front() == expected[static_cast<std::size_t>(offset)]);
  }
  CHECK(read_tokens(source, 259, 0).empty());
}

TEST_CASE("tokens outside a source are refused") {
  TemporaryFolder const folder;
  FileTokens const text({folder.write("a", "abc")}, TokenFormat::text);
  SyntheticTokens const synthetic(1, 7, 3);
  for (TokenSource const* source :
       {static_cast<TokenSource const*>(&text), static_cast<TokenSource const*>(&synthetic)}) {
    CHECK_THROWS_AS(read_tokens(*source, 3, 1), Error);
    CHECK_THROWS_AS(read_tokens(*source, 1, 3), Error);
    CHECK_THROWS_AS(read_tokens(*source, -1, 1), Error);
  }
}

TEST_CASE("shards of uint16 and uint32 tokens follow each other, also where a read crosses files and buffers") {
  TemporaryFolder const folder;
  std::vector<std::uint16_t> narrow(20011); // more than one 16 KiB buffer
  for (std::size_t i = 0; i < narrow.size(); ++i) narrow[i] = static_cast<std::uint16_t>(3 * i + 1);
  std::vector<std::uint32_t> wide(9973);
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<std::uint32_t>(100000 + 7 * i);
  FileTokens const source({folder.write("a", shard(narrow)), folder.write("b", shard(std::vector<std::uint32_t>{5})),
                           folder.write("c", shard(wide))},
                          TokenFormat::shard);
  std::vector<std::int32_t> expected(narrow.begin(), narrow.end());
  expected.push_back(5);
  expected.insert(expected.end(), wide.begin(), wide.end());
  REQUIRE(source.size() == static_cast<std::int64_t>(expected.size()));
  CHECK(read_tokens(source, 0, source.size()) == expected);
  CHECK(read_tokens(source, 20010, 3) == std::vector<std::int32_t>{3 * 20010 + 1, 5, 100000});
  CHECK(source.scan(1 << 20).vocabulary_needed == 100000 + 7 * 9972 + 1);
}

TEST_CASE("a damaged shard is refused with file and byte offset") {
  TemporaryFolder const folder;
  std::string const good = shard(std::vector<std::uint16_t>{1, 2, 3});
  auto const message = [&](std::string const& bytes) {
    return refusal(folder.write("shard.bin", bytes), TokenFormat::shard);
  };
  auto const where = [](std::string const& place) { return ContainsSubstring("shard.bin: " + place); };
  CHECK(message(good) == "no InputError");
  CHECK_THAT(message(shard_header(20240521, 1, 3) + "abcdef"), where("byte 0: magic number 20240521"));
  CHECK_THAT(message(shard_header(20240520, 7, 3) + "abcdef"),
             where("byte 4: version 7") && ContainsSubstring("must be 1"));
  CHECK_THAT(message(shard_header(20240801, 1, 1) + "abcd"),
             where("byte 4: version 1") && ContainsSubstring("must be 7"));
  CHECK_THAT(message(shard_header(20240520, 1, 0)), where("byte 8: the header announces 0 tokens"));
  CHECK_THAT(message(shard_header(20240520, 1, -4)), where("byte 8: the header announces -4 tokens"));
  CHECK_THAT(message(good.substr(0, 1023)), where("byte 1023: the file ends inside the token shard's header"));
  CHECK_THAT(message(good.substr(0, 1029)),
             where("byte 1029: the file ends") && ContainsSubstring("3 tokens = 1030 bytes"));
  CHECK_THAT(message(good + "x"), where("byte 1030: 1 bytes follow"));
  CHECK_THAT(message(""), where("byte 0: the file is empty"));
}

TEST_CASE("a path that is no readable file is refused by its name") {
  TemporaryFolder const folder;
  for (TokenFormat const format : {TokenFormat::text, TokenFormat::shard}) {
    CHECK_THAT(refusal(folder / "missing.txt", format),
               ContainsSubstring("missing.txt: cannot be opened: No such file"));
    CHECK_THAT(refusal(folder / "", format), ContainsSubstring("is a directory"));
    CHECK_THAT(refusal(folder.write("empty.txt", ""), format),
               ContainsSubstring("empty.txt: byte 0: the file is empty"));
  }
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(refusal(folder / "pipe", TokenFormat::text), ContainsSubstring("pipe: is not a regular file"));
  CHECK_THROWS_AS(FileTokens({}, TokenFormat::text), InputError);
}

TEST_CASE("a file without read permission is refused") {
  if (::geteuid() == 0) SKIP("root may read every file");
  TemporaryFolder const folder;
  std::string const path = folder.write("secret.txt", "abc");
  REQUIRE(::chmod(path.c_str(), 0) == 0);
  CHECK_THAT(refusal(path, TokenFormat::text), ContainsSubstring("secret.txt: cannot be opened: Permission denied"));
}

TEST_CASE("the scan names file, byte offset, token and limit of the first token outside the vocabulary") {
  TemporaryFolder const folder;
  std::vector<std::uint16_t> narrow(700001, 99); // the bad tokens lie behind the scan's first 1 MiB
  narrow[600000] = 100;
  narrow[600001] = 65535;
  std::string const narrow_path = folder.write("narrow.bin", shard(narrow));
  CHECK(refusal(narrow_path, TokenFormat::shard, 65536) == "no InputError");
  CHECK_THAT(refusal(narrow_path, TokenFormat::shard, 100),
             ContainsSubstring("narrow.bin: byte 1201024: token 100 is outside the vocabulary of 100"));
  CHECK_THAT(refusal(narrow_path, TokenFormat::shard, 101), ContainsSubstring("byte 1201026: token 65535"));

  std::string const wide_path = folder.write("wide.bin", shard(std::vector<std::uint32_t>{0, 1, 0xffffffffu}));
  CHECK_THAT(refusal(wide_path, TokenFormat::shard, 2147483647),
             ContainsSubstring("wide.bin: byte 1032: token 4294967295"));

  CHECK_THAT(refusal(folder.write("text", "abz{"), TokenFormat::text, 123),
             ContainsSubstring("text: byte 3: token 123"));
}

TEST_CASE("the scan hashes the bytes of all files as one stream") {
  TemporaryFolder const folder;
  FileTokens const nothing_like_it({folder.write("a", "abd")}, TokenFormat::text);
  FileTokens const whole({folder.write("b", "abc")}, TokenFormat::text);
  FileTokens const parts({folder.write("c", "a"), folder.write("d", "bc")}, TokenFormat::text);
  std::uint64_t const hash = whole.scan(256).xxhash;
  CHECK(xxhash_text(hash) == "78af5f94892f3950"); // XXH3-64 of "abc"
  CHECK(parts.scan(256).xxhash == hash);
  CHECK(nothing_like_it.scan(256).xxhash != hash);
  CHECK(whole.scan(256).vocabulary_needed == 'c' + 1);

  CHECK_NOTHROW(require_xxhash("78af5f94892f3950", hash));
  CHECK_NOTHROW(require_xxhash("", hash));
  CHECK_THROWS_WITH(require_xxhash("78af5f94892f3951", hash),
                    ContainsSubstring("78af5f94892f3950") && ContainsSubstring("78af5f94892f3951"));
}

TEST_CASE("a file that shrinks while it is in use is an error, not old bytes") {
  TemporaryFolder const folder;
  std::string const path = folder.write("log.txt", "abcdef");
  FileTokens const source({path}, TokenFormat::text);
  std::filesystem::resize_file(path, 2);
  CHECK_THROWS_WITH(read_tokens(source, 0, 6), ContainsSubstring("log.txt: byte 2: the file ends"));
}

TEST_CASE("tokens behind 4 GiB are read from where they are") {
  TemporaryFolder const folder;
  std::int32_t const tokens = 2147483647; // the most a header can announce: 4 GiB of uint16
  std::string const path = folder.write("large.bin", shard_header(20240520, 1, tokens));
  std::int64_t const end = 1024 + 2 * std::int64_t{tokens};
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    std::vector<std::uint16_t> const last = {11, 12, 13};
    file.seekp(end - 6);
    file << as_bytes(last);
    if (!file.flush()) SKIP("the temporary folder has no room for a file of " << end << " bytes");
  }
  struct stat status = {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  if (std::int64_t{status.st_blocks} * 512 > 1 << 30) SKIP("the temporary folder has no sparse files");

  FileTokens const source({path, folder.write("small.bin", shard(std::vector<std::uint16_t>{14, 15}))},
                          TokenFormat::shard);
  REQUIRE(source.size() == std::int64_t{tokens} + 2);
  CHECK(read_tokens(source, tokens - 4, 6) == std::vector<std::int32_t>{0, 11, 12, 13, 14, 15});
  CHECK(read_tokens(source, tokens / 2, 2) == std::vector<std::int32_t>{0, 0});
}

TEST_CASE("a synthetic token depends on the seed and its place alone") {
  std::int64_t const size = 1000;
  SyntheticTokens const source(7, 311, size);
  std::vector<std::int32_t> const all = read_tokens(source, 0, size);
  CHECK(std::ranges::all_of(all, [](std::int32_t token) { return 0 <= token && token < 311; }));
  for (std::int64_t const offset : {0, 1, 63, 64, 65, 500, 999}) {
    for (std::int64_t const count : {1, 2, 97}) {
      if (offset + count > size) continue;
      CAPTURE(offset, count);
      std::vector<std::int32_t> const expected(all.begin() + offset, all.begin() + offset + count);
      CHECK(read_tokens(source, offset, count) == expected);
    }
  }
  CHECK(read_tokens(SyntheticTokens(7, 311, 2 * size), 0, size) == all);
  CHECK(read_tokens(SyntheticTokens(8, 311, size), 0, size) != all);
}

TEST_CASE("synthetic tokens can be learned: their conditional entropy is far below a uniform sequence's") {
  std::int64_t const size = 64 * 6250;
  for (std::int64_t const vocabulary : {1, 2, 17, 64}) {
    CAPTURE(vocabulary);
    SyntheticTokens const source(3, vocabulary, size);
    std::vector<std::int32_t> const tokens = read_tokens(source, 0, size);
    std::map<std::pair<std::int32_t, std::int32_t>, double> pairs;
    std::map<std::int32_t, double> firsts;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      ++pairs[{tokens[i], tokens[i + 1]}];
      ++firsts[tokens[i]];
    }
    double counted = 0; // entropy of a token given its predecessor, in nats
    for (auto const& [pair, count] : pairs) counted -= count * std::log(count / firsts[pair.first]);
    counted /= static_cast<double>(tokens.size() - 1);

    // Counting does not know where blocks begin: that costs at most ln 2 per block of 64 and one more random token in
    // 64 (mixing is concave). Counted over 4e5 pairs in at most 64^2 cells: bias cells / (2 pairs) = 0.005, noise less.
    double const uniform_entropy = std::log(static_cast<double>(vocabulary));
    CHECK_THAT(counted, WithinAbs(source.entropy(), 0.03 + 0.02 * uniform_entropy));
    if (vocabulary > 2) CHECK(counted < 0.5 * uniform_entropy);

    double unigram = 0; // the frequency of a token alone tells nothing: only the rule does
    for (auto const& [token, count] : firsts) {
      double const share = count / static_cast<double>(tokens.size() - 1);
      unigram -= share * std::log(share);
    }
    CHECK_THAT(unigram, WithinAbs(uniform_entropy, 0.01));
  }
}

TEST_CASE("the synthetic rule is a permutation for every vocabulary and differs between seeds") {
  std::set<std::vector<std::int32_t>> rules;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (std::int64_t const vocabulary : {1, 2, 6, 30}) {
      SyntheticTokens const source(seed, vocabulary, 64 * 400);
      std::vector<std::int32_t> const tokens = read_tokens(source, 0, source.size());
      std::vector<std::map<std::int32_t, int>> followers(static_cast<std::size_t>(vocabulary));
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
        ++followers[static_cast<std::size_t>(tokens[i])][tokens[i + 1]];
      std::vector<std::int32_t> successors;
      for (auto const& counts : followers) {
        REQUIRE(!counts.empty());
        successors.push_back(
            std::ranges::max_element(counts, {}, [](auto const& entry) { return entry.second; })->first);
      }
      if (vocabulary == 30) rules.insert(successors);
      std::ranges::sort(successors);
      CAPTURE(seed, vocabulary);
      CHECK(std::ranges::adjacent_find(successors) == successors.end());
    }
  }
  CHECK(rules.size() >= 18); // 8 factors * 30 shifts = 240 rules: 20 draws meet about once
}

TEST_CASE("synthetic data of no tokens or of an impossible vocabulary is refused") {
  CHECK_THROWS_AS(SyntheticTokens(1, 0, 10), InputError);
  CHECK_THROWS_AS(SyntheticTokens(1, std::int64_t{1} << 31, 10), InputError);
  CHECK_THROWS_AS(SyntheticTokens(1, 10, 0), InputError);
}
