// Collectives on the timeline: in flight beside what is computed, and waited for.

#include "comm/algorithms/registry.hpp"
#include "comm/execution/execution_queue.hpp"
#include "comm/schedule/emulated_network.hpp"
#include "core/timed_region.hpp"
#include "support/collective_run.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace trainstone;

namespace {

TimelineEvent find(std::vector<TimelineEvent> const& events, Lane lane, std::string const& name) {
  auto const found = std::ranges::find_if(
      events, [&](TimelineEvent const& event) { return event.lane == lane && event.name == name; });
  INFO(name);
  REQUIRE(found != events.end());
  return *found;
}

bool is_inside(TimelineEvent const& inner, TimelineEvent const& outer) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

} // namespace

TEST_CASE("a collective in flight overlaps what is computed, and the wait for its end", "[mpi][timeline]") {
  Communicator communicator = test::world();
  if (communicator.size() == 1) return; // nothing to send
  communicator.emulate_network(EmulatedNetwork::uniform({.latency = 1e-3}));
  Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(10, communicator.size()));
  Schedule const schedule = make_schedule(problem, Algorithm::ring, communicator.rank());
  test::OwnMemory<float> const memory(communicator, schedule, std::vector<float>(10, 1));
  Execution execution(ExecutionSpace(), communicator, schedule, Operation::sum, memory.data.vector(),
                      memory.scratch.vector(), memory.options);
  execution.run(); // not recorded
  Recording const recording(100);
  {
    ExecutionQueue queue;
    queue.start(execution);
    {
      TimedRegion const computing([] { return "trainstone::test::compute"; });
    }
    queue.wait(execution);
  }
  execution.run();
  std::vector<TimelineEvent> const events = recording.events();
  CHECK(events.size() == 5); // two collectives, two waits, one region
  std::string const name = "all_reduce ring, 40 bytes";
  CHECK(execution.name() == name);
  TimelineEvent const collective = find(events, Lane::collective, name);
  CHECK(is_inside(find(events, Lane::compute, "trainstone::test::compute"), collective));
  TimelineEvent const wait = find(events, Lane::wait, name);
  CHECK(collective.begin <= wait.begin);
  CHECK(collective.end <= wait.end);
  auto const messages = static_cast<std::int64_t>(2 * (communicator.size() - 1)); // 1 ms each
  CHECK(collective.end - collective.begin >= 1'000'000 * messages);
}
