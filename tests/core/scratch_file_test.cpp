// Files without names, and requests that go on meanwhile.

#include "core/file_queue.hpp"

#include "support/errors.hpp"
#include "support/file_size_limit.hpp"
#include "support/one_more_file.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <unistd.h>

#include <cstdlib>
#include <new>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace fs = std::filesystem;

namespace {

constexpr std::size_t block = file_alignment;

/// Memory that direct access can use.
class Blocks {
public:
  explicit Blocks(std::size_t count) : m_memory(std::aligned_alloc(block, count * block)), m_count(count) {}
  Blocks(Blocks const&) = delete;
  Blocks& operator=(Blocks const&) = delete;
  ~Blocks() { std::free(m_memory); }

  std::span<std::byte> all() const { return {static_cast<std::byte*>(m_memory), m_count * block}; }
  void fill(int seed) const {
    for (std::size_t i = 0; i < all().size(); ++i) all()[i] = static_cast<std::byte>((i * 7 + i / block) * 3 + seed);
  }
  bool operator==(Blocks const& other) const { return std::ranges::equal(all(), other.all()); }

private:
  void* m_memory;
  std::size_t m_count;
};

/// The file without a name that this process has open in a folder, by which tests reach it.
fs::path open_file_in(fs::path const& folder) {
  for (fs::directory_entry const& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    fs::path const target = fs::read_symlink(entry.path(), gone);
    if (!gone && target.string().starts_with(folder.string() + "/")) return entry.path();
  }
  return {};
}

} // namespace

TEST_CASE("a scratch file has no name, and gives back what was written", "[files]") {
  TemporaryFolder const temporary;
  auto const direct = GENERATE(DirectIo::automatic, DirectIo::off);
  auto const engine = GENERATE(IoEngine::automatic, IoEngine::psync);
  ScratchFile file({temporary.path(), direct, engine}, 8 * block);
  if (direct == DirectIo::off) CHECK_FALSE(file.is_direct());
  if (engine == IoEngine::psync) CHECK_FALSE(file.has_ring());
  CHECK(file.why_no_ring().empty() == (file.has_ring() || engine == IoEngine::psync));
  CHECK(fs::is_empty(temporary.path()));
  Blocks const written(3), read(3);
  written.fill(5);
  file.write(2 * block, written.all());
  file.read(2 * block, read.all());
  CHECK(read == written);
  CHECK_THAT(error_of([&] { file.read(7 * block, read.all()); }), ContainsSubstring("ends at byte 36864"));
}

TEST_CASE("requests of a queue end in the order in which they were asked for", "[files]") {
  TemporaryFolder const temporary;
  auto const engine = GENERATE(IoEngine::automatic, IoEngine::psync);
  ScratchFile file({.folder = temporary.path(), .io_engine = engine}, 16 * block);
  Blocks const memory(1), expected(1), old(1);
  FileQueue queue(file);
  memory.fill(1);
  expected.fill(1);
  FileQueue::Ticket last = 0;
  for (std::uint64_t place = 0; place < 16; ++place) last = queue.write(place * block, memory.all());
  last = queue.read(3 * block, old.all()); // behind the writes
  queue.read(9 * block, memory.all());     // into what they use
  queue.wait(last);
  CHECK(old == expected);
  queue.wait(last + 1);
  CHECK(queue.is_done(last + 1));
  CHECK_FALSE(queue.is_done(last + 2)); // nobody has asked for it
  CHECK(memory == expected);
}

TEST_CASE("a file that is cut meanwhile ends the wait with an error that names it", "[files]") {
  TemporaryFolder const temporary;
  auto const engine = GENERATE(IoEngine::automatic, IoEngine::psync);
  ScratchFile file({temporary.path(), DirectIo::off, engine}, 4 * block);
  FileQueue queue(file);
  Blocks const memory(2);
  fs::resize_file(open_file_in(temporary.path()), block);
  FileQueue::Ticket const cut = queue.read(0, memory.all());
  CHECK_THAT(error_of([&] { queue.wait(cut); }),
             ContainsSubstring(temporary.path()) && ContainsSubstring("ends at byte 4096"));
  FileQueue::Ticket const next = queue.read(0, memory.all().first(block));
  CHECK_THAT(error_of([&] { queue.wait(next); }), ContainsSubstring("ends at byte 4096")); // the first error
}

TEST_CASE("a cut is found where later writes have made the file longer again", "[files]") {
  TemporaryFolder const temporary;
  auto const engine = GENERATE(IoEngine::automatic, IoEngine::psync);
  ScratchFile file({temporary.path(), DirectIo::off, engine}, 4 * block);
  Blocks const memory(1);
  for (std::uint64_t place = 0; place < 4; ++place) file.write(place * block, memory.all());
  fs::resize_file(open_file_in(temporary.path()), 0);
  file.write(3 * block, memory.all()); // the last byte of the data
  CHECK_THAT(error_of([&] { file.read(block, memory.all()); }),
             ContainsSubstring("ends at byte 16384, and was longer"));
}

TEST_CASE("a full disk is found when the file is made", "[files]") {
  TemporaryFolder const temporary;
  FileSizeLimit const full(2 * block);
  CHECK_THAT(error_of([&] { ScratchFile({.folder = temporary.path()}, 3 * block); }),
             ContainsSubstring("no room for 12288 bytes"));
  CHECK_THAT(error_of([&] { ScratchFile({.folder = temporary.path() + "/no"}, block); }),
             ContainsSubstring("is no folder"));
}

TEST_CASE("where the system refuses a ring, calls move the bytes, and a demand for a ring is refused", "[files]") {
  TemporaryFolder const temporary;
  Blocks const written(3), read(3);
  written.fill(4);
  std::string demanded, why;
  {
    OneMoreFile const none_for_a_ring;
    ScratchFile file({.folder = temporary.path()}, 4 * block);
    file.write(block, written.all());
    file.read(block, read.all());
    CHECK_FALSE(file.has_ring());
    why = file.why_no_ring();
  }
  {
    OneMoreFile const none_for_a_ring;
    demanded = error_of<InputError>(
        [&] { ScratchFile({.folder = temporary.path(), .io_engine = IoEngine::io_uring}, block); });
  }
  CHECK(read == written);
  CHECK_THAT(why, ContainsSubstring("the system refuses io_uring: Too many open files") ||
                      ContainsSubstring("built without liburing"));
  CHECK_THAT(demanded, ContainsSubstring("memory.io_engine = \"io_uring\": " + why) &&
                           ContainsSubstring("nearest legal values: auto, psync"));
}
