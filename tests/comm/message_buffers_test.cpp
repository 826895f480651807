// What MPI is given, as a value: names, lengths of messages, and the memory that their copies take.

#include "comm/schedule/message_buffers.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/execution/buffers.hpp"
#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <utility>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::uint64_t mebi = 1048576;

Schedule make(Collective collective, Algorithm algorithm, Index elements, Rank ranks) {
  return make_schedule(Problem::on_one_node(collective, Partition::even(elements, ranks)), algorithm, 0);
}

std::uint64_t staging(Schedule const& schedule, std::size_t element_bytes, Index longest = longest_mpi_message) {
  return staging_bytes(MessageBuffers::staged, schedule, element_bytes, longest);
}

} // namespace

TEST_CASE("buffers are read by the names that are printed", "[comm][buffers]") {
  for (MessageBuffers const buffers : message_buffers) CHECK(parse_message_buffers(to_string(buffers)) == buffers);
  CHECK(parse_message_buffers("auto") == std::nullopt);
  CHECK_THROWS_WITH(parse_message_buffers("pinned"), ContainsSubstring("auto, host, staged, device"));
}

TEST_CASE("staged messages have at most one MiB, others what MPI can count", "[comm][buffers]") {
  CHECK(longest_message(MessageBuffers::staged, 4) == 262144);
  CHECK(longest_message(MessageBuffers::staged, 2) == 524288);
  CHECK(longest_message(MessageBuffers::host, 4) == longest_mpi_message);
  CHECK(longest_message(MessageBuffers::device, 4) == longest_mpi_message);
}

TEST_CASE("staging holds the messages of the largest round, each on 64 bytes of its own", "[comm][buffers]") {
  // a ring sends and receives a block per round
  CHECK(staging(make(Collective::all_reduce, Algorithm::ring, 64, 4), 4) == 2 * 64);
  CHECK(staging(make(Collective::all_reduce, Algorithm::ring, 4 * 17, 4), 4) == 2 * 128);
  // naive: everything to and from everybody
  CHECK(staging(make(Collective::all_reduce, Algorithm::naive, 1000, 4), 8) == 3 * 2 * 8000);
  CHECK(staging(make(Collective::all_reduce, Algorithm::naive, 1000, 4), 8, 3) == 3 * 2 * 334 * 64);
  // a part of one element, and one of a whole MiB
  CHECK(staging(make(Collective::broadcast, Algorithm::linear, 262144, 3), 4) == 2 * mebi);
  CHECK(staging(make(Collective::broadcast, Algorithm::linear, 262145, 3), 4) == 2 * (mebi + 64));
  CHECK(staging(make(Collective::barrier, Algorithm::dissemination, 0, 4), 4) == 0);
  CHECK(staging(make(Collective::all_reduce, Algorithm::ring, 64, 1), 4) == 0);
}

TEST_CASE("memory that MPI is given itself needs no staging", "[comm][buffers]") {
  Schedule const naive = make(Collective::all_reduce, Algorithm::naive, 1000, 4);
  CHECK(staging_bytes(MessageBuffers::host, naive, 4) == 0);
  CHECK(staging_bytes(MessageBuffers::device, naive, 4) == 0);
}

TEST_CASE("pinned memory is counted among the buffers, and cut on 64 bytes", "[comm][buffers]") {
  MemoryLedger ledger;
  {
    PinnedMemory memory(ledger, "test", 192);
    CHECK(ledger.current()[MemoryCategory::buffers] == 192);
    std::span<std::byte> const first = memory.take(65), second = memory.take(64);
    CHECK(first.size() == 65);
    CHECK(second.data() - first.data() == 128);
    CHECK(memory.used() == memory.capacity());
    CHECK(memory.take(0).empty());
    CHECK_THROWS_AS(memory.take(1), Error);
    PinnedMemory const moved = std::move(memory);
    CHECK(moved.capacity() == 192);
    CHECK(ledger.current()[MemoryCategory::buffers] == 192);
  }
  CHECK(ledger.current()[MemoryCategory::buffers] == 0);
  CHECK(ledger.high_water()[MemoryCategory::buffers] == 192);
}

TEST_CASE("pinned memory is in the ledger while it lives, and is taken to its end, not beyond", "[comm][buffers]") {
  MemoryLedger ledger;
  {
    PinnedMemory memory(ledger, "test", 3 * memory_footprint(1));
    CHECK(ledger.current()[MemoryCategory::buffers] == 3 * memory_footprint(1));
    std::byte const* const first = memory.take(1).data();
    CHECK(memory.take(memory_footprint(1) + 1).data() == first + memory_footprint(1));
    CHECK(memory.used() == memory.capacity());
    CHECK_THROWS_WITH(memory.take(1), ContainsSubstring("pinned memory exhausted"));
    PinnedMemory const moved = std::move(memory);
    CHECK(ledger.current()[MemoryCategory::buffers] == 3 * memory_footprint(1));
  }
  CHECK(ledger.current().total() == 0);
}
