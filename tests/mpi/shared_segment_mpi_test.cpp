#include "comm/execution/shared_segment.hpp"

#include "comm/execution/control.hpp"
#include "comm/execution/node_memory.hpp"
#include "comm/execution/shared_overhead.hpp"
#include "core/error.hpp"
#include "core/large_pages.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <new>
#include <random>
#include <thread>
#include <vector>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

std::uint64_t const page = Impl::page_bytes();

SharedSegment make_segment(Communicator const& communicator, MemoryLedger& ledger, std::uint64_t bytes) {
  test::skip_on_devices("the host looks into what its ranks share");
  return SharedSegment(communicator, ledger, MemoryCategory::buffers, "test", bytes);
}

/// Returns when all neighbours have come to a barrier.
void wait(SharedSegment& segment, std::uint64_t ticket, std::uint64_t step) {
  for (Patience patience; !segment.all_arrived(ticket, step);) patience.look_again();
}

void meet(SharedSegment& segment, std::uint64_t ticket, std::uint64_t step) {
  segment.arrive(ticket, step, 0, 0);
  wait(segment, ticket, step);
}

/// What rank `writer` writes into element i of its part.
std::uint32_t value(Rank writer, std::uint64_t i, std::uint64_t turn) {
  return static_cast<std::uint32_t>(1000003 * (writer + 1) + 7 * i + 1000000007 * turn);
}

std::uint32_t& element(std::byte* part, std::uint64_t i) { return reinterpret_cast<std::uint32_t*>(part)[i]; }

/// Every rank writes its part and reads all others', several times.
void check_that_all_see_all(SharedSegment& segment, Rank me) {
  std::uint64_t const ticket = segment.next_ticket();
  auto const& neighbours = segment.neighbours();
  for (std::uint64_t turn = 0; turn < 5; ++turn) {
    for (std::uint64_t i = 0; i < segment.bytes().extent(0) / 4; ++i) {
      element(segment.bytes().data(), i) = value(me, i, turn);
    }
    meet(segment, ticket, 2 * turn);
    for (std::size_t n = 0; n < neighbours.size(); ++n) {
      std::uint64_t wrong = 0;
      for (std::uint64_t i = 0; i < segment.part_bytes(n) / 4; ++i) {
        wrong += element(segment.part(n), i) == value(neighbours[n], i, turn) ? 0 : 1;
      }
      INFO("turn " << turn << ", the part of rank " << neighbours[n]);
      CHECK(wrong == 0);
    }
    meet(segment, ticket, 2 * turn + 1);
  }
}

/// Of what a process made.
std::vector<std::string> names_in_shared_memory(pid_t process) {
  std::string const prefix = fmt::format("trainstone-{}-", process);
  std::vector<std::string> found;
  std::error_code ignored;
  for (auto const& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    std::string const name = entry.path().filename().string();
    if (name.starts_with(prefix)) found.push_back(name);
  }
  return found;
}

} // namespace

TEST_CASE("neighbours see each other's parts, which may have any size", "[mpi][shared_segment]") {
  Communicator const world = Communicator::world();
  MemoryLedger ledger;
  for (std::uint64_t const unit : {std::uint64_t{0}, std::uint64_t{4}, page, 3 * page + 4, 100 * page, 1200 * page}) {
    std::uint64_t const bytes = unit * static_cast<std::uint64_t>(world.rank() % 3); // none for ranks 0, 3, 6
    SharedSegment segment = make_segment(world, ledger, bytes);
    CHECK(segment.neighbours() == world.topology().neighbours(world.rank()));
    CHECK(segment.bytes().extent(0) == bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(segment.bytes().data()) % page == 0);
    for (std::size_t n = 0; n < segment.neighbours().size(); ++n) {
      CHECK(segment.part_bytes(n) == unit * static_cast<std::uint64_t>(segment.neighbours()[n] % 3));
    }
    check_that_all_see_all(segment, world.rank());
  }
}

TEST_CASE("a new part is zero, in the ledger while it lives, and knows what lies in it", "[mpi][shared_segment]") {
  test::skip_on_devices("the host looks into what its ranks share");
  Communicator const world = Communicator::world();
  MemoryLedger ledger;
  std::uint64_t const bytes = 5 * page + static_cast<std::uint64_t>(world.rank());
  {
    SharedSegment made(world, ledger, MemoryCategory::gradients, "test", bytes);
    SharedSegment const segment = std::move(made);
    CHECK(ledger.current()[MemoryCategory::gradients] == bytes);
    CHECK(ledger.current()[MemoryCategory::buffers] == shared_overhead(bytes));
    // a kilobyte for each ticket and a cache line, then a part: both in whole pages
    std::uint64_t const whole = (64 * 1024 + 64 + page - 1) / page * page + (bytes + page - 1) / page * page;
    CHECK(ledger.current().total() == whole);
    std::byte const* const begin = segment.bytes().data();
    CHECK(std::all_of(begin, begin + bytes, [](std::byte byte) { return byte == std::byte{0}; }));
    CHECK(segment.contains(begin, bytes));
    CHECK(segment.contains(begin + bytes, 0));
    CHECK(!segment.contains(begin, bytes + 1));
    CHECK(!segment.contains(begin + 1, bytes));
    CHECK(!segment.contains(begin - 1, 1));
    CHECK(!segment.contains(nullptr, 0));
    barrier(world); // nobody's part goes while others look at it
  }
  CHECK(ledger.current().total() == 0);
  CHECK(ledger.high_water()[MemoryCategory::gradients] == bytes);
}

TEST_CASE("tickets come round after 64 and keep the offsets of their first barrier", "[mpi][shared_segment]") {
  Communicator const world = Communicator::world();
  MemoryLedger ledger;
  SharedSegment segment = make_segment(world, ledger, 0);
  auto const offset = [](Rank rank, std::uint64_t ticket) { return 1000 * ticket + static_cast<std::uint64_t>(rank); };
  for (int round = 0; round < 5; ++round) {
    std::vector<std::uint64_t> tickets(round % 2 == 0 ? SharedSegment::open_tickets : 29);
    for (std::uint64_t& ticket : tickets) ticket = segment.next_ticket();
    for (std::uint64_t step = 0; step < 3; ++step) { // all tickets are in use at once
      for (std::uint64_t const ticket : tickets) {
        std::uint64_t const mine = step == 0 ? offset(world.rank(), ticket) : 5;
        segment.arrive(ticket, step, mine, 2 * mine);
      }
      for (std::uint64_t const ticket : tickets) {
        wait(segment, ticket, step);
        for (std::size_t n = 0; n < segment.neighbours().size(); ++n) {
          INFO("ticket " << ticket << ", barrier " << step << ", neighbour " << n);
          REQUIRE(segment.data_offset(ticket, n) == offset(segment.neighbours()[n], ticket));
          REQUIRE(segment.scratch_offset(ticket, n) == 2 * offset(segment.neighbours()[n], ticket));
        }
      }
      barrier(world); // offsets may be read until the last barrier only
    }
    for (std::uint64_t const ticket : tickets) segment.close_ticket(ticket);
  }
}

TEST_CASE("more than 64 tickets at once are refused", "[mpi][shared_segment]") {
  Communicator const world = Communicator::world();
  MemoryLedger ledger;
  SharedSegment segment = make_segment(world, ledger, 0);
  std::uint64_t const first = segment.next_ticket();
  for (std::uint64_t i = 1; i < SharedSegment::open_tickets; ++i) segment.close_ticket(segment.next_ticket());
  CHECK_THROWS_AS(segment.next_ticket(), Error);
  segment.close_ticket(first);
  CHECK(segment.next_ticket() == SharedSegment::open_tickets);
}

TEST_CASE("a ticket's place is taken again when all neighbours have closed it and not before",
          "[mpi][shared_segment]") {
  Communicator const world = Communicator::world();
  MemoryLedger ledger;
  SharedSegment segment = make_segment(world, ledger, 0);
  std::uint64_t wrong = 0;
  auto const at = [&](std::uint64_t ticket, std::size_t neighbour) -> std::uint32_t& {
    return element(segment.mailbox(ticket, neighbour), SharedSegment::mailbox_bytes / 4 - 1);
  };
  auto const read_and_close = [&](std::uint64_t ticket) {
    for (std::size_t n = 0; n < segment.neighbours().size(); ++n)
      wrong += at(ticket, n) == value(segment.neighbours()[n], 0, ticket) ? 0 : 1;
    segment.close_ticket(ticket);
  };
  std::uint64_t const unread = 7; // by rank 0, until no more tickets can be had without closing it
  for (std::uint64_t turn = 0; turn < 3 * SharedSegment::open_tickets; ++turn) {
    std::uint64_t const ticket = segment.next_ticket();
    for (Patience patience; !segment.is_free(ticket);) patience.look_again();
    at(ticket, segment.me()) = value(world.rank(), 0, ticket);
    meet(segment, ticket, 0);
    if (world.rank() > 0 || ticket != unread) read_and_close(ticket);
    if (world.rank() > 0 || ticket != unread + SharedSegment::open_tickets - 1) continue;
    std::this_thread::sleep_for(std::chrono::milliseconds(20)); // the others would go on if they could
    read_and_close(unread);
  }
  CHECK(wrong == 0);
}

TEST_CASE("a barrier is complete when the last rank has come and not before", "[mpi][shared_segment]") {
  Communicator const world = Communicator::world();
  MemoryLedger ledger;
  SharedSegment segment = make_segment(world, ledger, 0);
  for (Rank last = 0; last < world.size(); ++last) {
    std::uint64_t const ticket = segment.next_ticket();
    for (std::uint64_t step = 0; step < 2; ++step) {
      CHECK(!segment.all_arrived(ticket, step));
      barrier(world);
      if (world.rank() != last) segment.arrive(ticket, step, 0, 0);
      barrier(world);
      CHECK(!segment.all_arrived(ticket, step));
      barrier(world);
      if (world.rank() == last) segment.arrive(ticket, step, 0, 0);
      wait(segment, ticket, step);
      CHECK(!segment.all_arrived(ticket, step + 1));
      barrier(world);
    }
    segment.close_ticket(ticket);
  }
}

TEST_CASE("no rank overtakes a barrier whatever the delays", "[mpi][shared_segment]") {
  Communicator const world = Communicator::world();
  MemoryLedger ledger;
  SharedSegment segment = make_segment(world, ledger, sizeof(std::uint32_t));
  std::minstd_rand random(static_cast<unsigned>(world.rank()) + 1);
  std::uint64_t wrong = 0;
  std::uint64_t ticket = 0;
  for (std::uint64_t turn = 0; turn < 400; ++turn) {
    std::uint64_t const step = turn % 4 * 2; // a new ticket every fourth turn
    if (step == 0) ticket = segment.next_ticket();
    if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    element(segment.bytes().data(), 0) = value(world.rank(), 0, turn);
    meet(segment, ticket, step);
    if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    for (std::size_t n = 0; n < segment.neighbours().size(); ++n) {
      wrong += element(segment.part(n), 0) == value(segment.neighbours()[n], 0, turn) ? 0 : 1;
    }
    meet(segment, ticket, step + 1);
    if (turn % 4 == 3) segment.close_ticket(ticket);
  }
  CHECK(wrong == 0);
}

TEST_CASE("a barrier that was passed cannot be come to again", "[mpi][shared_segment]") {
  Communicator const world = Communicator::world();
  MemoryLedger ledger;
  SharedSegment segment = make_segment(world, ledger, 0);
  segment.arrive(65, 1, 0, 0);
  CHECK_THROWS_AS(segment.arrive(65, 1, 0, 0), Error);
  CHECK_THROWS_AS(segment.arrive(65, 0, 0, 0), Error);
  CHECK_THROWS_AS(segment.arrive(1, 2, 0, 0), Error); // its place is ticket 65's now
  CHECK_THROWS_AS(segment.arrive(66, 65535, 0, 0), Error);
  barrier(world);
}

TEST_CASE("emulated nodes have segments of their own and do not wait for each other", "[mpi][shared_segment]") {
  Communicator const real = Communicator::world();
  if (real.size() < 2) return;
  Communicator const world = Communicator::world(2);
  MemoryLedger ledger;
  SharedSegment segment = make_segment(world, ledger, page);
  CHECK(segment.neighbours() == world.topology().neighbours(world.rank()));
  CHECK(std::ssize(segment.neighbours()) < world.size());
  check_that_all_see_all(segment, world.rank());
  std::uint64_t const ticket = segment.next_ticket();
  bool const first_node = world.topology().node_of(world.rank()) == 0;
  if (first_node) meet(segment, ticket, 0);
  barrier(world);
  CHECK(segment.all_arrived(ticket, 0) == first_node);
  if (!first_node) meet(segment, ticket, 0);
}

TEST_CASE("memory that a rank cannot have is refused on all ranks", "[mpi][shared_segment]") {
  test::skip_on_devices("the host looks into what its ranks share");
  Communicator const world = Communicator::world();
  MemoryLedger ledger;
  std::uint64_t const bytes = world.rank() == world.size() - 1 ? std::uint64_t{1} << 60 : page;
  CHECK_THROWS_AS(make_segment(world, ledger, bytes), CollectiveError);
  CHECK_THROWS_WITH(make_segment(world, ledger, bytes),
                    ContainsSubstring("shared memory for test: rank 0 cannot make shared memory") ||
                        ContainsSubstring("cannot map shared memory"));
  CHECK(ledger.high_water_total() == 0);
  SharedSegment segment = make_segment(world, ledger, page);
  check_that_all_see_all(segment, world.rank());
}

TEST_CASE("an error of any rank is thrown on all with its words", "[mpi][shared_segment]") {
  Communicator const world = Communicator::world();
  for (Rank failing = 0; failing < world.size(); ++failing) {
    auto const act = [&] {
      Impl::on_all_ranks(world, "do it", [&] {
        if (world.rank() >= failing) throw Error(fmt::format("no luck on {}", world.rank()));
      });
    };
    CHECK_THROWS_AS(act(), CollectiveError);
    CHECK_THROWS_WITH(act(), fmt::format("rank {0} cannot do it: no luck on {0}", failing));
    auto const run_out_of_memory = [&] {
      Impl::on_all_ranks(world, "do it", [&] {
        if (world.rank() == failing) throw std::bad_alloc();
      });
    };
    CHECK_THROWS_AS(run_out_of_memory(), CollectiveError);
  }
}

TEST_CASE("memory can be shared under a name, which is gone when all have it", "[mpi][shared_segment]") {
  Communicator const world = Communicator::world();
  for (Impl::Sharing const sharing : {Impl::Sharing::nameless, Impl::Sharing::named}) {
    INFO(Impl::to_string(sharing));
    auto const ranks = static_cast<std::uint64_t>(world.size());
    auto const me = static_cast<std::uint64_t>(world.rank());
    Impl::NodeMemory const memory(world, ranks * page, sharing);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.begin()) % large_page_bytes == 0);
    memory.populate(me * page, page);
    element(memory.begin() + me * page, 3) = value(world.rank(), 3, 0);
    barrier(world);
    for (std::uint64_t n = 0; n < ranks; ++n) {
      CHECK(element(memory.begin() + n * page, 3) == value(static_cast<Rank>(n), 3, 0));
    }
    for (pid_t const process : all_gather_values(world, getpid())) CHECK(names_in_shared_memory(process).empty());
    barrier(world); // nobody makes the next one yet
  }
}

// Started by killed_run_test.py, which kills the ranks meanwhile.
TEST_CASE("ranks that wait in shared memory for ever", "[.killed]") {
  Communicator const world = Communicator::world();
  MemoryLedger ledger;
  SharedSegment segment = make_segment(world, ledger, 1000 * page);
  check_that_all_see_all(segment, world.rank());
  std::vector<pid_t> const processes = all_gather_values(world, getpid());
  if (world.rank() == 0) {
    for (pid_t const process : processes) std::cout << "process " << process << '\n';
    std::cout << "waiting" << std::endl;
  }
  wait(segment, segment.next_ticket(), 0);
}
