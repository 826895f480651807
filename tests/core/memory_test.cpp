#include "core/memory.hpp"

#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <utility>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the ledger keeps current bytes and high water, per category and in total") {
  MemoryLedger ledger;
  ledger.add(MemoryCategory::parameters, 100);
  ledger.add(MemoryCategory::gradients, 30);
  ledger.remove(MemoryCategory::parameters, 60);
  ledger.add(MemoryCategory::parameters, 20);
  ledger.add(MemoryCategory::gradients, 10);
  CHECK(ledger.current()[MemoryCategory::parameters] == 60);
  CHECK(ledger.current()[MemoryCategory::gradients] == 40);
  CHECK(ledger.current()[MemoryCategory::data] == 0);
  CHECK(ledger.current().total() == 100);
  CHECK(ledger.high_water()[MemoryCategory::parameters] == 100);
  CHECK(ledger.high_water()[MemoryCategory::gradients] == 40);
  CHECK(ledger.high_water_total() == 130); // not the sum of the categories' high waters
}

TEST_CASE("the ledger refuses to free more than is allocated") {
  MemoryLedger ledger;
  ledger.add(MemoryCategory::buffers, 5);
  CHECK_THROWS_WITH(ledger.remove(MemoryCategory::buffers, 6), ContainsSubstring("6 bytes of buffers"));
  CHECK_THROWS_AS(ledger.remove(MemoryCategory::data, 1), Error);
}

TEST_CASE("memory that another object holds is in the ledger while its entry lives") {
  MemoryLedger ledger;
  {
    LedgerEntry entry(ledger, MemoryCategory::buffers, 5);
    LedgerEntry moved = std::move(entry);
    CHECK(ledger.current()[MemoryCategory::buffers] == 5);
    moved = LedgerEntry(ledger, MemoryCategory::data, 7);
    LedgerEntry const none;
  }
  CHECK(ledger.current().total() == 0);
  CHECK(ledger.high_water_total() == 12);
}

TEST_CASE("every memory category has its own name") {
  for (MemoryCategory const a : memory_categories)
    for (MemoryCategory const b : memory_categories) CHECK((to_string(a) == to_string(b)) == (a == b));
}

TEST_CASE("an allocation is in the ledger as long as it lives") {
  MemoryLedger ledger;
  {
    Allocation const first(ledger, MemoryCategory::parameters, "first", 1001);
    CHECK(first.bytes().extent(0) == 1001);
    CHECK(reinterpret_cast<std::uintptr_t>(first.bytes().data()) % memory_alignment == 0);
    Allocation const empty(ledger, MemoryCategory::data, "empty", 0);
    CHECK(ledger.current().total() == 1001);
  }
  CHECK(ledger.current().total() == 0);
  CHECK(ledger.high_water_total() == 1001);
}

TEST_CASE("a moved allocation is counted once") {
  MemoryLedger ledger;
  Allocation first(ledger, MemoryCategory::optimizer, "first", 11);
  std::byte* const address = first.bytes().data();
  Allocation second(std::move(first));
  CHECK(second.bytes().data() == address);
  CHECK(ledger.current().total() == 11);
  Allocation third;
  third = std::move(second);
  CHECK(third.bytes().data() == address);
  CHECK(ledger.current().total() == 11);
  third = Allocation(ledger, MemoryCategory::optimizer, "other", 7);
  CHECK(ledger.current().total() == 7);
  third = Allocation();
  CHECK(ledger.current().total() == 0);
}

TEST_CASE("an arena cuts aligned tensors in order, as their footprints predict") {
  MemoryLedger ledger;
  std::uint64_t const predicted = memory_footprint(3 * 4) + memory_footprint(5 * 7 * 8) + memory_footprint(0) + 64;
  Allocation const memory(ledger, MemoryCategory::activations, "arena", predicted);
  Arena arena(memory.bytes());
  Vector<float> const first = arena.vector<float>("first", 3);
  Matrix<double> const second = arena.matrix<double>("second", 5, 7);
  Vector<int> const empty = arena.vector<int>("empty", 0);
  Vector<std::byte> const last = arena.vector<std::byte>("last", 64);
  CHECK(reinterpret_cast<std::byte*>(first.data()) == memory.bytes().data());
  CHECK(reinterpret_cast<std::byte*>(second.data()) == memory.bytes().data() + 64);
  CHECK(second.extent(0) == 5);
  CHECK(second.extent(1) == 7);
  CHECK(empty.extent(0) == 0);
  CHECK(last.data() + 64 == memory.bytes().data() + predicted);
  CHECK(arena.used() == predicted);
  CHECK(arena.used() == arena.capacity());
}

TEST_CASE("an exhausted arena names the tensor that does not fit") {
  MemoryLedger ledger;
  Allocation const memory(ledger, MemoryCategory::activations, "arena", 128);
  Arena arena(memory.bytes());
  arena.vector<float>("fits", 16);
  CHECK_THROWS_WITH(arena.vector<float>("too long", 17), ContainsSubstring("too long asks for 128 bytes, 64 of 128"));
  CHECK(arena.used() == 64);
  CHECK_NOTHROW(arena.vector<float>("fits too", 16));
  CHECK_THROWS_AS(Arena().vector<char>("nothing", 1), Error);
}

TEST_CASE("footprints are multiples of the alignment") {
  CHECK(memory_footprint(0) == 0);
  CHECK(memory_footprint(1) == 64);
  CHECK(memory_footprint(64) == 64);
  CHECK(memory_footprint(65) == 128);
}
