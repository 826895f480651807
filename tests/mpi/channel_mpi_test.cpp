// Executions that share a tag: their messages meet in the order in which they were started, whatever each of them comes
// after.

#include "comm/algorithms/registry.hpp"
#include "comm/execution/buffers.hpp"
#include "comm/execution/control.hpp"
#include "comm/execution/execution_queue.hpp"
#include "support/held_events.hpp"
#include "support/views.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

using namespace trainstone;

namespace {

constexpr Index elements = 3, buffers = 4;

/// Of the first two ranks: rank 0 sends from several buffers, and rank 1 receives into others.
struct Channel {
  Channel(Communicator& pair, std::vector<float> const& values)
      : data(values), tag(std::make_shared<SharedTag>(pair.take_tag())) {
    Problem const problem = even_problem(Collective::broadcast, elements, pair.topology());
    for (Index number = 0; number < buffers; ++number)
      executions.emplace_back(communication, pair, make_schedule(problem, Algorithm::linear, pair.rank()),
                              Operation::sum,
                              Vector<float>(data.vector().data() + number * elements, std::size_t{elements}),
                              Vector<float>(), ExecutionOptions{.caller = &exec, .tag = tag});
  }

  ExecutionSpace exec;
  ExecutionSpace communication = communication_instance(exec);
  test::DeviceTensor<float> data;
  std::shared_ptr<SharedTag> tag;
  std::deque<Execution> executions;
};

/// In the place of each buffer its message: message i has 10 i, 10 i + 1, ...
std::vector<float> messages(std::array<Index, buffers> const& order) {
  std::vector<float> values(std::size_t{buffers * elements});
  for (std::size_t i = 0; i < order.size(); ++i)
    for (Index j = 0; j < elements; ++j)
      values[static_cast<std::size_t>(order[i] * elements + j)] = static_cast<float>(10 * static_cast<Index>(i) + j);
  return values;
}

} // namespace

TEST_CASE("executions that share a tag meet in the order of their starts", "[mpi][execution]") {
  Communicator world = test::world();
  unsigned const seed = GENERATE(1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U); // on all ranks
  std::optional<Communicator> pair = world.size() < 2 ? std::nullopt : world.first(2);
  if (!pair) return;
  bool const sends = pair->rank() == 0;
  std::array<Index, buffers> const order =
      sends ? std::array<Index, buffers>{2, 0, 3, 1} : std::array<Index, buffers>{0, 1, 2, 3};
  Channel channel(*pair, sends ? messages(order) : std::vector<float>(std::size_t{buffers * elements}, -1.0f));
  ExecutionQueue queue;
  test::HeldEvents const held(test::HeldEvents::Until::chance, seed + static_cast<unsigned>(pair->rank()));
  for (Index const number : order) queue.start(channel.executions[static_cast<std::size_t>(number)]);
  queue.wait_all();
  CHECK(channel.data.values() == messages(order));
  CHECK(held.looks() > 0);
}
