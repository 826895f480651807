// What becomes of a schedule's messages: long ones are cut, types keep their special values, and what does not fit
// together is refused before MPI sees it.

#include "comm/execution/control.hpp"
#include "core/error.hpp"
#include "support/collective_run.hpp"
#include "support/traffic.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <limits>
#include <numeric>

using namespace trainstone;

namespace {

Problem all_reduce_problem(Communicator const& communicator, Index elements) {
  return {.collective = Collective::all_reduce,
          .partition = Partition::even(elements, communicator.size()),
          .topology = communicator.topology()};
}

template <class T>
void all_reduce(Communicator& communicator, Operation operation, std::vector<T>& data,
                ExecutionOptions const& options = {}) {
  ExecutionSpace const exec;
  Schedule const schedule =
      make_schedule(all_reduce_problem(communicator, std::ssize(data)), Algorithm::ring, communicator.rank());
  test::OwnMemory<T> const memory(communicator, schedule, data, options);
  Execution(exec, communicator, schedule, operation, memory.data.vector(), memory.scratch.vector(), memory.options)
      .run();
  data = memory.data.values();
}

} // namespace

TEST_CASE("long moves travel as several messages with the same result", "[mpi][messages]") {
  Communicator communicator = test::world();
  Problem const problem = all_reduce_problem(communicator, 1009);
  Schedule const schedule = make_schedule(problem, Algorithm::ring, communicator.rank());
  for (bool const persistent : {true, false}) {
    for (Index const longest : {1, 7, 126, 127, 1009}) {
      std::vector<float> data = test::input<float>(problem, communicator.rank());
      comm_counters() = {};
      all_reduce(communicator, Operation::sum, data, {.longest_message = longest, .persistent = persistent});
      INFO("at most " << longest << " elements per message");
      CHECK(test::mismatch(problem, Operation::sum, communicator.rank(), data) == "");
      Traffic const counted = comm_counters().at(Purpose::training, Collective::all_reduce, Algorithm::ring);
      CHECK(counted == predict_traffic(schedule, problem.topology, sizeof(float), longest));
      if (longest == 1) CHECK(counted.messages * sizeof(float) == counted.bytes);
    }
  }
}

TEST_CASE("integer sums wrap around and a NaN survives max and min", "[mpi][messages]") {
  Communicator communicator = test::world();
  std::vector<std::int64_t> hashes(3, std::numeric_limits<std::int64_t>::max());
  all_reduce(communicator, Operation::sum, hashes);
  auto const expected =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(communicator.size()) * 0x7fffffffffffffffu);
  CHECK(hashes == std::vector<std::int64_t>(3, expected));
  for (Operation const operation : {Operation::max, Operation::min}) {
    for (Rank poisoned = 0; poisoned < communicator.size(); ++poisoned) {
      std::vector<double> values(3, communicator.rank());
      if (communicator.rank() == poisoned) values[1] = std::nan("");
      all_reduce(communicator, operation, values);
      CHECK(std::isnan(values[1]));
      CHECK_FALSE(std::isnan(values[0]));
    }
  }
}

TEST_CASE("a schedule of another rank, wrong extents and wrong limits are refused", "[mpi][messages]") {
  ExecutionSpace const exec;
  Communicator communicator = test::world();
  Rank const ranks = communicator.size();
  auto const attempt = [&](Rank schedule_ranks, Rank rank, std::size_t elements, std::size_t scratch_elements,
                           Index longest) {
    test::DeviceTensor<float> const data{std::vector<float>(elements)}, scratch{std::vector<float>(scratch_elements)};
    std::vector<std::byte> staging(1 << 20);
    Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(100, schedule_ranks));
    Execution const execution(exec, communicator, make_schedule(problem, Algorithm::ring, rank), Operation::sum,
                              data.vector(), scratch.vector(), {.longest_message = longest, .staging = staging});
  };
  CHECK_NOTHROW(attempt(ranks, communicator.rank(), 100, 100, 1));
  CHECK_THROWS_AS(attempt(ranks, communicator.rank(), 99, 100, 1), Error);
  CHECK_THROWS_AS(attempt(ranks, communicator.rank(), 100, 100, 0), Error);
  if (communicator.buffers() != MessageBuffers::staged) // these are cut before
    CHECK_THROWS_AS(attempt(ranks, communicator.rank(), 100, 100, longest_mpi_message + 1), Error);
  CHECK_THROWS_AS(attempt(ranks + 1, communicator.rank(), 100, 100, 1), Error);
  if (ranks > 1) {
    CHECK_THROWS_AS(attempt(ranks, communicator.rank(), 100, 0, 1), Error);
    CHECK_THROWS_AS(attempt(ranks, (communicator.rank() + 1) % ranks, 100, 100, 1), Error);
  }
}

// 4.4 GB on two ranks; run by name: mpiexec -n 2 test_mpi "[large]"
TEST_CASE("a message of more than 2^31 bytes arrives", "[.][large]") {
  Communicator communicator = test::world();
  Index const elements = (Index{1} << 28) + 12'345; // of 8 bytes
  Problem problem = all_reduce_problem(communicator, elements);
  problem.collective = Collective::broadcast;
  ExecutionSpace const exec;
  std::vector<std::int64_t> data(static_cast<std::size_t>(elements), -1);
  if (communicator.rank() == 0) std::iota(data.begin(), data.end(), 0);
  Schedule const schedule = make_schedule(problem, Algorithm::binomial, communicator.rank());
  test::OwnMemory<std::int64_t> const memory(communicator, schedule, data);
  comm_counters() = {};
  Execution(exec, communicator, schedule, Operation::sum, memory.data.vector(), Vector<std::int64_t>(), memory.options)
      .run();
  data = memory.data.values();
  Index wrong = 0;
  for (Index i = 0; i < elements; ++i) wrong += data[static_cast<std::size_t>(i)] == i ? 0 : 1;
  CHECK(wrong == 0);
  if (communicator.size() == 2 && communicator.rank() == 0 && communicator.buffers() != MessageBuffers::staged) {
    CHECK(comm_counters().total(Purpose::training) == Traffic{1, 8 * static_cast<std::uint64_t>(elements), 0});
  }
}
