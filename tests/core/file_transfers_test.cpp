// Calls and rings: all bytes are moved, or the first one that is not is named.

#include "core/file_transfers.hpp"

#include "support/temporary_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <utility>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

using Stop = FileTransfers::Stop;

/// Not in the class: nvcc 13.0 never ends on a REQUIRE in a member.
int opened(std::string const& path, int flags) {
  int const number = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  REQUIRE(number >= 0);
  return number;
}

/// An open file, or one that only reads it.
class OpenFile {
public:
  OpenFile(std::string const& path, int flags) : m_number(opened(path, flags)) {}
  OpenFile(OpenFile const&) = delete;
  OpenFile& operator=(OpenFile const&) = delete;
  ~OpenFile() { ::close(m_number); }
  int number() const { return m_number; }

private:
  int m_number;
};

enum class Way { calls, small_ring, ring };

/// Null: this machine has no rings.
std::unique_ptr<FileTransfers> transfers(Way way, OpenFile const& file) {
  std::string why_not;
  if (way == Way::calls) return make_calls(file.number());
  auto ring = way == Way::ring ? make_ring(file.number(), why_not)
                               : make_ring(file.number(), why_not, {.bytes = 1000, .under_way = 3});
  if (!ring) WARN("rings are not tried: " << why_not);
  return ring;
}

std::vector<std::byte> numbered(std::size_t bytes) {
  std::vector<std::byte> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(i * 7 + i / 251);
  return values;
}

/// Hears of a signal every 50 us, without asking the system to go on with what it interrupts.
class ManySignals {
public:
  ManySignals() {
    struct sigaction action = {};
    action.sa_handler = [](int) { heard = heard + 1; };
    sigaction(SIGALRM, &action, &m_before);
    heard = 0;
    set(50);
  }
  ManySignals(ManySignals const&) = delete;
  ManySignals& operator=(ManySignals const&) = delete;
  ~ManySignals() {
    set(0);
    sigaction(SIGALRM, &m_before, nullptr);
  }
  static inline std::sig_atomic_t volatile heard = 0;

private:
  static void set(suseconds_t microseconds) {
    itimerval const every{{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &every, nullptr);
  }
  struct sigaction m_before = {};
};

} // namespace

TEST_CASE("transfers of any length and place give back what was written", "[files]") {
  TemporaryFolder const temporary;
  OpenFile const file(temporary.path() + "/a", O_RDWR | O_CREAT);
  auto const way = GENERATE(Way::calls, Way::small_ring, Way::ring);
  auto const ways = transfers(way, file);
  if (!ways) return;
  for (std::uint64_t const place : {0, 1, 999, 4096, 1234567})
    for (std::size_t const bytes : {0, 1, 999, 1000, 1001, 2999, 3001, 12347, (1 << 20) + 3, (17 << 20) + 5}) {
      INFO(bytes << " bytes at " << place);
      std::vector<std::byte> const written = numbered(bytes);
      std::vector<std::byte> read(bytes + 2, std::byte{99});
      CHECK(ways->write(place, written) == std::nullopt);
      CHECK(ways->read(place, std::span(read).subspan(1, bytes)) == std::nullopt);
      CHECK(std::equal(written.begin(), written.end(), read.begin() + 1));
      CHECK((read.front() == std::byte{99} && read.back() == std::byte{99})); // beside what was asked for
    }
}

TEST_CASE("a transfer names the first byte that a file does not have", "[files]") {
  TemporaryFolder const temporary;
  OpenFile const file(temporary.path() + "/a", O_RDWR | O_CREAT);
  auto const way = GENERATE(Way::calls, Way::small_ring, Way::ring);
  auto const ways = transfers(way, file);
  if (!ways) return;
  for (std::uint64_t const end : {0, 1, 1000, 2500, 9999}) {
    std::filesystem::resize_file(temporary.path() + "/a", end);
    std::vector<std::byte> read(10000);
    CHECK(ways->read(0, read) == Stop{end, 0});
    CHECK(ways->read(end + 5, read) == Stop{end + 5, 0});
    CHECK(ways->read(0, std::span(read).first(end)) == std::nullopt); // and the next one succeeds
  }
}

TEST_CASE("a transfer that the system refuses has its reason", "[files]") {
  TemporaryFolder const temporary;
  std::vector<std::byte> bytes(10000);
  OpenFile const writes(temporary.path() + "/a", O_WRONLY | O_CREAT);
  OpenFile const reads(temporary.path() + "/a", O_RDONLY);
  auto const way = GENERATE(Way::calls, Way::small_ring, Way::ring);
  auto const of_writes = transfers(way, writes), of_reads = transfers(way, reads);
  if (!of_writes) return;
  CHECK(of_writes->read(5, bytes) == Stop{5, EBADF});
  CHECK(of_reads->write(7, bytes) == Stop{7, EBADF});
  CHECK(of_writes->write(0, bytes) == std::nullopt);
  CHECK(of_reads->read(0, bytes) == std::nullopt);
}

TEST_CASE("signals do not disturb a transfer", "[files]") {
  TemporaryFolder const temporary;
  OpenFile const file(temporary.path() + "/a", O_RDWR | O_CREAT);
  auto const way = GENERATE(Way::calls, Way::small_ring, Way::ring);
  auto const ways = transfers(way, file);
  if (!ways) return;
  std::vector<std::byte> const written = numbered(20 << 20);
  std::vector<std::byte> read(written.size());
  std::optional<Stop> stop_of_write, stop_of_read;
  {
    ManySignals const signals;
    stop_of_write = ways->write(3, written);
    stop_of_read = ways->read(3, read);
  }
  CHECK(ManySignals::heard > 0);
  CHECK(stop_of_write == std::nullopt);
  CHECK(stop_of_read == std::nullopt);
  CHECK(read == written);
}
