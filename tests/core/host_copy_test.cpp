#include "core/host_copy.hpp"
#include "core/memory.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;

TEST_CASE("values survive the way to the device and back", "[core]") {
  ExecutionSpace const exec;
  MemoryLedger ledger;
  for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{17}}) {
    Allocation const memory(ledger, MemoryCategory::data, "test", memory_footprint(count * sizeof(int)));
    Arena arena(memory.bytes());
    Vector<int> const view = arena.vector<int>("values", static_cast<Index>(count));
    std::vector<int> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<int>(3 * i + 1);
    copy_from_host<int>(exec, values, view, "test");
    CHECK(copy_to_host(exec, view, "test") == values);
  }
}
