// Executions that do not come to their end, or may not begin: what is withdrawn, what is refused, which tags are free.

#include "comm/control.hpp"
#include "comm/execution/execution.hpp"
#include "comm/mpi.hpp"
#include "core/error.hpp"
#include "support/collective_run.hpp"
#include "support/schedules.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <deque>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

Execution make_ring(Communicator& communicator, std::vector<float>& data, std::vector<float>& scratch,
                    bool persistent = true) {
  Problem const problem{.collective = Collective::all_reduce,
                        .partition = Partition::even(std::ssize(data), communicator.size()),
                        .topology = communicator.topology()};
  return Execution(ExecutionSpace(), communicator, make_schedule(problem, Algorithm::ring, communicator.rank()),
                   Operation::sum, Vector<float>(data.data(), data.size()),
                   Vector<float>(scratch.data(), scratch.size()), {.persistent = persistent});
}

/// An all-reduce of ones.
struct Ones {
  explicit Ones(Communicator& communicator) : execution(make_ring(communicator, data, scratch)) {}

  std::vector<float> data = std::vector<float>(100, 1);
  std::vector<float> scratch = std::vector<float>(100);
  Execution execution;
};

} // namespace

TEST_CASE("what an exception leaves in flight is withdrawn: nobody writes to its memory", "[mpi][ends]") {
  Communicator communicator = Communicator::world();
  Rank const ranks = communicator.size();
  for (bool const persistent : {true, false}) {
    std::vector<float> data(100, 1), scratch(100, 0);
    auto const start_and_fail = [&] {
      Execution execution = make_ring(communicator, data, scratch, persistent);
      execution.start();
      throw Error("of the caller");
    };
    if (communicator.rank() == 0) CHECK_THROWS_AS(start_and_fail(), Error);
    barrier(communicator);
    if (communicator.rank() != 0) CHECK_THROWS_AS(start_and_fail(), Error); // the last one sends to rank 0
    barrier(communicator);
    std::vector<float> others_data(100, 1), others_scratch(100);
    make_ring(communicator, others_data, others_scratch, persistent).run();
    CHECK(others_data == std::vector<float>(100, static_cast<float>(ranks)));
    if (communicator.rank() == 0) CHECK(scratch == std::vector<float>(100, 0));
  }
}

TEST_CASE("an execution destroyed in flight", "[.in_flight]") { // ends the run: a test of ctest of its own
  Communicator communicator = Communicator::world();
  Ones ones(communicator);
  ones.execution.start();
}

TEST_CASE("a schedule with an empty round is refused", "[mpi][ends]") {
  Communicator communicator = Communicator::world();
  Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(0, communicator.size()));
  std::vector<std::vector<Round>> const rounds(static_cast<std::size_t>(communicator.size()), {Round{}});
  Schedule const schedule = test::schedules_of(problem, rounds)[static_cast<std::size_t>(communicator.rank())];
  auto const make = [&] {
    Execution(ExecutionSpace(), communicator, schedule, Operation::sum, Vector<float>(), Vector<float>());
  };
  CHECK_THROWS_WITH(make(), ContainsSubstring("has an empty round"));
}

TEST_CASE("tags come round without meeting those of prepared messages", "[mpi][ends]") {
  Communicator communicator = Communicator::world();
  communicator.limit_tags(3);
  std::deque<Ones> kept;
  for (int i = 0; i < 2; ++i) kept.emplace_back(communicator);
  for (int i = 0; i < 5; ++i) { // two tags are left
    CHECK(communicator.take_tag().value() >= 2);
    Ones first(communicator), second(communicator);
    kept[0].execution.start();
    first.execution.start();
    second.execution.start();
    second.execution.wait();
    first.execution.wait();
    kept[0].execution.wait();
    CHECK(second.data == std::vector<float>(100, static_cast<float>(communicator.size())));
  }
  for (int i = 0; i < 2; ++i) kept.emplace_back(communicator);
  CHECK_THROWS_WITH(communicator.take_tag(), ContainsSubstring("4 collectives of one communicator are prepared"));
  kept.pop_front();
  CHECK(communicator.take_tag().value() >= 0);
}

TEST_CASE("a rank that waits in shared memory lets MPI deliver what it has sent before", "[mpi][ends]") {
  Communicator communicator = Communicator::world();
  if (communicator.size() == 1) return;
  Communicator const messenger = Communicator::world();
  MPI_Comm const comm = messenger.handle().comm;
  test::Workspace workspace(communicator);
  Problem const problem = test::problems(communicator, Collective::all_reduce, 2)[0];
  std::vector<char> message(std::size_t{1} << 24); // too long to be delivered without the sender
  MPI_Request request = MPI_REQUEST_NULL;
  auto const length = static_cast<int>(message.size());
  if (communicator.rank() == 0) {
    TRAINSTONE_MPI_CHECK(MPI_Isend(message.data(), length, MPI_CHAR, 1, 0, comm, &request));
  } else if (communicator.rank() == 1) {
    TRAINSTONE_MPI_CHECK(MPI_Recv(message.data(), length, MPI_CHAR, 0, 0, comm, MPI_STATUS_IGNORE));
  }
  std::vector<float> const values = workspace.run<float>(problem, Algorithm::shared, Operation::sum);
  CHECK(test::mismatch(problem, Operation::sum, communicator.rank(), values) == "");
  TRAINSTONE_MPI_CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}
