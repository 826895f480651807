// What MPI itself was given to send, as a preloaded library counts it (counted_calls.cpp), equals the program's
// counters. Runs by its tag alone, with the library.

#include "comm/schedule/counters.hpp"
#include "support/counted_run.hpp"

#include <dlfcn.h>

#include <utility>
#include <vector>

namespace {

using namespace trainstone;
using namespace trainstone::test;

using SentByMpi = void(unsigned long long* messages, unsigned long long* bytes);

/// So far.
Traffic sent_by_mpi() {
  auto* const sent = reinterpret_cast<SentByMpi*>(dlsym(RTLD_DEFAULT, "trainstone_test_sent"));
  REQUIRE(sent != nullptr); // the library was preloaded
  unsigned long long messages = 0, bytes = 0;
  sent(&messages, &bytes);
  Traffic traffic;
  traffic.messages = messages;
  traffic.bytes = bytes;
  return traffic;
}

struct Shape {
  Index tensor, stages;
};

} // namespace

TEST_CASE("MPI was given what the program has counted", "[.calls]") {
  Communicator world = Communicator::world();
  std::vector<Shape> const shapes{{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {4, 2}, {8, 1}};
  int tried = 0;
  for (auto const& [tensor, stages] : shapes) {
    if (world.size() % (tensor * stages) != 0) continue;
    auto const data = static_cast<Rank>(world.size() / tensor / stages);
    bool shares_positions = false;
    for (ParallelConfig const& strategy : strategies(data)) {
      RunConfig config = training_config({2, 8, 24, 17, 100}, {2, 2, 4 * data});
      config.data.sequence = 16;
      set_strategy(config, strategy);
      config.parallel.tensor = tensor;
      config.parallel.pipeline = stages;
      config.parallel.sequence = tensor > 1 && std::exchange(shares_positions, !shares_positions);
      INFO(tensor << " tensor ranks, " << stages << " stages, stage " << strategy.zero_stage << " of ZeRO, "
                  << (config.parallel.sequence ? "shared positions" : "all positions"));
      TrainingRun run(world, config);
      comm_counters() = {};
      Traffic const before = sent_by_mpi();
      for (std::int64_t step = 1; step <= 2; ++step) run.trainer.step(step);
      run.trainer.validate();
      run.trainer.finish();
      Traffic const after = sent_by_mpi();
      Traffic counted = comm_counters().total(Purpose::training);
      counted += comm_counters().total(Purpose::control);
      CHECK(after.messages - before.messages == counted.messages);
      CHECK(after.bytes - before.bytes == counted.bytes);
      if (world.size() > 1) CHECK(counted.messages > 0);
      ++tried;
    }
  }
  CHECK(tried > 0);
}
