// Watches of real ranks. That a killed rank is missed: killed_neighbour_test.py. A false alarm would end the process.

#include "comm/execution/neighbour_watch.hpp"

#include "comm/execution/control.hpp"

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>

using namespace trainstone;

namespace {

constexpr std::chrono::milliseconds period(1), many_periods(20);

} // namespace

TEST_CASE("ranks that end their watch in any order are not missed", "[mpi][neighbour_watch]") {
  Communicator const world = Communicator::world();
  for (Rank first = 0; first < world.size(); ++first) {
    std::optional<NeighbourWatch> watch(std::in_place, world, period);
    for (Rank i = 0; i < world.size(); ++i) {
      std::this_thread::sleep_for(many_periods / world.size());
      barrier(world);
      if (world.rank() == (first + i) % world.size()) watch.reset();
    }
    barrier(world);
    CHECK(!watch);
  }
}

TEST_CASE("a rank that ends by an exception is not missed", "[mpi][neighbour_watch]") {
  Communicator const world = Communicator::world();
  auto const work = [&] {
    NeighbourWatch const watch(world, period);
    if (world.rank() == 0) throw std::runtime_error("no luck");
    std::this_thread::sleep_for(many_periods);
  };
  if (world.rank() == 0)
    CHECK_THROWS_AS(work(), std::runtime_error);
  else
    CHECK_NOTHROW(work());
}

TEST_CASE("watches may live beside each other, and on emulated nodes", "[mpi][neighbour_watch]") {
  Communicator const world = Communicator::world();
  NeighbourWatch const all(world, period);
  for (int nodes = 1; nodes <= world.size(); ++nodes) {
    Communicator const emulated = Communicator::world(nodes);
    NeighbourWatch const some(emulated, period);
    std::this_thread::sleep_for(2 * period);
  }
  barrier(world);
  SUCCEED("nobody was missed");
}
