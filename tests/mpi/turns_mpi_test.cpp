// Executions that are started in turn: one at a time, and of those that wait the one with the smallest number.

#include "comm/algorithms/registry.hpp"
#include "comm/execution/buffers.hpp"
#include "comm/execution/control.hpp"
#include "comm/execution/execution_queue.hpp"
#include "support/held_events.hpp"
#include "support/views.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <deque>
#include <optional>
#include <vector>

using namespace trainstone;

namespace {

constexpr Index elements = 1 << 18; // so many that a message needs its receiver
constexpr std::size_t count = 4;
constexpr std::array<Index, count> numbers{5, 3, 9, 1};

/// Of the first two ranks: as many broadcasts, each with a tag of its own.
struct Broadcasts {
  explicit Broadcasts(Communicator& pair) : data(count * static_cast<std::size_t>(elements), 0.0f) {
    Problem const problem = even_problem(Collective::broadcast, elements, pair.topology());
    for (std::size_t i = 0; i < count; ++i)
      executions.emplace_back(exec, pair, make_schedule(problem, Algorithm::linear, pair.rank()), Operation::sum,
                              Vector<float>(data.vector().data() + i * elements, std::size_t{elements}),
                              Vector<float>(), ExecutionOptions{.any_order = true});
  }

  ExecutionSpace exec;
  test::DeviceTensor<float> data;
  std::deque<Execution> executions;
};

std::optional<Communicator> first_two(Communicator const& world) {
  return world.size() < 2 ? std::nullopt : world.first(2);
}

} // namespace

TEST_CASE("of those that wait for their turn, the one with the smallest number is next", "[mpi][execution]") {
  Communicator world = test::world();
  std::optional<Communicator> pair = first_two(world);
  if (!pair) return;
  Broadcasts broadcasts(*pair);
  ExecutionQueue queue;
  // The first rank tells which one is under way, and the second one receives that one: none ends before it is told.
  auto const tell = [&](double place) { return control_all_reduce(broadcasts.exec, *pair, Operation::sum, place); };
  if (pair->rank() == 1) {
    for (std::size_t i = 0; i < count; ++i) {
      queue.start(broadcasts.executions[static_cast<std::size_t>(tell(0))]);
      queue.wait_all();
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i)
    queue.start_in_turn(broadcasts.executions[i], InstanceEvent(broadcasts.exec), numbers[i]);
  CHECK(queue.in_flight() == count);
  CHECK(broadcasts.executions[0].in_flight()); // which came when nobody else was there
  std::vector<Index> started;
  while (started.size() < count) {
    std::size_t place = 0, flying = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (!broadcasts.executions[i].in_flight()) continue;
      place = i;
      ++flying;
    }
    CHECK(flying == 1);
    CHECK(queue.in_flight() == count - started.size());
    started.push_back(numbers[place]);
    tell(static_cast<double>(place));
    while (queue.has(broadcasts.executions[place])) queue.progress();
  }
  CHECK(started == std::vector<Index>{5, 1, 3, 9});
  CHECK(queue.in_flight() == 0);
}

TEST_CASE("whoever waits for one waits for its turn, too", "[mpi][execution]") {
  Communicator world = test::world();
  std::optional<Communicator> pair = first_two(world);
  if (!pair) return;
  Broadcasts broadcasts(*pair);
  ExecutionQueue queue;
  test::HeldEvents const held(test::HeldEvents::Until::chance, 3); // what it comes after is late
  for (std::size_t i = 0; i < count; ++i)
    if (pair->rank() == 0)
      queue.start_in_turn(broadcasts.executions[i], InstanceEvent(broadcasts.exec), numbers[i]);
    else
      queue.start(broadcasts.executions[count - 1 - i]);
  queue.wait(broadcasts.executions[2]); // the last one in turn
  CHECK(!queue.has(broadcasts.executions[2]));
  queue.wait_all();
  CHECK(queue.in_flight() == 0);
}
