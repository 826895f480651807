// Executions that do not come to their end, or may not begin: what is withdrawn, what is refused, which tags are free.

#include "comm/execution/control.hpp"
#include "comm/execution/execution.hpp"
#include "comm/execution/execution_queue.hpp"
#include "comm/execution/mpi.hpp"
#include "core/error.hpp"
#include "support/collective_run.hpp"
#include "support/schedules.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <deque>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

Schedule ring_of(Communicator const& communicator, Index elements) {
  Problem const problem{.collective = Collective::all_reduce,
                        .partition = Partition::even(elements, communicator.size()),
                        .topology = communicator.topology()};
  return make_schedule(problem, Algorithm::ring, communicator.rank());
}

test::OwnMemory<float> ones(Communicator const& communicator, bool persistent = true, Index elements = 100) {
  std::vector<float> const values(static_cast<std::size_t>(elements), 1);
  return {communicator, ring_of(communicator, elements), values, {.persistent = persistent}};
}

Execution make_ring(Communicator& communicator, test::OwnMemory<float> const& memory) {
  Vector<float> const data = memory.data.vector();
  return Execution(ExecutionSpace(), communicator, ring_of(communicator, static_cast<Index>(data.extent(0))),
                   Operation::sum, data, memory.scratch.vector(), memory.options);
}

/// An all-reduce of ones.
struct Ones {
  explicit Ones(Communicator& communicator) : memory(ones(communicator)), execution(make_ring(communicator, memory)) {}

  test::OwnMemory<float> memory;
  Execution execution;
};

} // namespace

TEST_CASE("what an exception leaves in flight is withdrawn: nobody writes to its memory", "[mpi][ends]") {
  Communicator communicator = test::world();
  Rank const ranks = communicator.size();
  for (bool const persistent : {true, false}) {
    test::OwnMemory<float> const memory = ones(communicator, persistent), others = ones(communicator, persistent);
    auto const start_and_fail = [&] {
      Execution execution = make_ring(communicator, memory);
      execution.start();
      throw Error("of the caller");
    };
    if (communicator.rank() == 0) CHECK_THROWS_AS(start_and_fail(), Error);
    barrier(communicator);
    if (communicator.rank() != 0) CHECK_THROWS_AS(start_and_fail(), Error); // the last one sends to rank 0
    barrier(communicator);
    make_ring(communicator, others).run();
    CHECK(others.data.values() == std::vector<float>(100, static_cast<float>(ranks)));
    if (communicator.rank() == 0) CHECK(memory.scratch.values() == std::vector<float>(memory.scratch.size(), 0));
  }
}

TEST_CASE("an execution destroyed in flight", "[.in_flight]") { // ends the run: a test of ctest of its own
  Communicator communicator = test::world();
  Ones ones(communicator);
  ones.execution.start();
}

TEST_CASE("a schedule with an empty round is refused", "[mpi][ends]") {
  Communicator communicator = test::world();
  Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(0, communicator.size()));
  std::vector<std::vector<Round>> const rounds(static_cast<std::size_t>(communicator.size()), {Round{}});
  Schedule const schedule = test::schedules_of(problem, rounds)[static_cast<std::size_t>(communicator.rank())];
  auto const make = [&] {
    Execution(ExecutionSpace(), communicator, schedule, Operation::sum, Vector<float>(), Vector<float>());
  };
  CHECK_THROWS_WITH(make(), ContainsSubstring("has an empty round"));
}

TEST_CASE("tags come round without meeting those of prepared messages", "[mpi][ends]") {
  Communicator communicator = test::world();
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
    CHECK(second.memory.data.values() == std::vector<float>(100, static_cast<float>(communicator.size())));
  }
  for (int i = 0; i < 2; ++i) kept.emplace_back(communicator);
  CHECK_THROWS_WITH(communicator.take_tag(), ContainsSubstring("4 collectives of one communicator are prepared"));
  kept.pop_front();
  CHECK(communicator.take_tag().value() >= 0);
}

TEST_CASE("a rank that waits in shared memory lets MPI deliver what it has sent before", "[mpi][ends]") {
  test::skip_on_devices("the host looks into what its ranks share");
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

TEST_CASE("what arrives after an exception has come to its end when the memory is the caller's again", "[mpi][ends]") {
  Communicator communicator = test::world();
  Communicator const messenger = test::world();
  test::OwnMemory<float> const memory = ones(communicator, true, Index{1} << 22); // too long to be sent at once
  auto const start_and_fail = [&] {
    Execution execution = make_ring(communicator, memory);
    execution.start();
    barrier(messenger); // all have posted
    throw Error("of the caller");
  };
  CHECK_THROWS_AS(start_and_fail(), Error);
  std::vector<float> const left = memory.scratch.values();
  barrier(messenger); // MPI works meanwhile
  CHECK(memory.scratch.values() == left);
  barrier(messenger);
}

TEST_CASE("an execution that has failed cannot be used again, nor can its segment", "[mpi][ends]") {
  test::skip_on_devices("the host looks into what its ranks share");
  Communicator communicator = Communicator::world();
  if (communicator.size() == 1) return;
  MemoryLedger ledger;
  SharedSegment segment(communicator, ledger, MemoryCategory::buffers, "test", 1024);
  Problem problem = Problem::on_one_node(Collective::all_reduce, Partition::even(1, communicator.size()));
  problem.shared_memory = true;
  std::vector<float> own(1, 5);
  auto* const shared = reinterpret_cast<float*>(segment.bytes().data());
  *shared = 5;
  // rank 1 adds nothing up and may not be asked where its data lies: who reads it finds out
  Vector<float> const data(communicator.rank() == 1 ? own.data() : shared, 1);
  Execution execution(ExecutionSpace(), communicator, make_schedule(problem, Algorithm::shared, communicator.rank()),
                      Operation::sum, data, Vector<float>(), {.segment = &segment});
  if (communicator.rank() == 0) {
    CHECK_THROWS_WITH(execution.run(), ContainsSubstring("data of rank 1 lies outside of the node's shared memory"));
    CHECK_THROWS_WITH(execution.start(), ContainsSubstring("unfinished"));
    CHECK_THROWS_WITH(execution.wait(), ContainsSubstring("has failed before"));
    CHECK_THROWS_WITH(segment.next_ticket(), ContainsSubstring("unfinished"));
  } else {
    auto const start_and_fail = [&] {
      Execution mine = std::move(execution);
      mine.start();
      throw Error("the others never come to the second barrier");
    };
    CHECK_THROWS_AS(start_and_fail(), Error);
  }
  CHECK(*shared == 5);
}

TEST_CASE("a mailbox is looked at within its bounds", "[mpi][ends]") {
  test::skip_on_devices("the host looks into what its ranks share");
  Communicator communicator = Communicator::world();
  MemoryLedger ledger;
  SharedSegment segment(communicator, ledger, MemoryCategory::buffers, "test", 1024);
  Slice const too_far{BufferId::mailbox, {mailbox_elements, mailbox_elements + 1}};
  std::vector<float> data(2, 1);
  Schedule schedule{.collective = Collective::all_reduce,
                    .algorithm = Algorithm::shared_mailbox,
                    .rank = communicator.rank(),
                    .ranks = communicator.size(),
                    .elements = 2,
                    .rounds = {{Move::copy({BufferId::data, {0, 1}}, too_far)}},
                    .neighbours = communicator.topology().neighbours(communicator.rank())};
  auto const run = [&] {
    Execution(ExecutionSpace(), communicator, schedule, Operation::sum, Vector<float>(data.data(), 2), Vector<float>(),
              {.segment = &segment})
        .run();
  };
  CHECK_THROWS_WITH(run(), ContainsSubstring("mailbox [125, 126) of 125 elements"));
  schedule.neighbours.clear();
  CHECK_THROWS_WITH(run(), ContainsSubstring("without neighbours"));
}

TEST_CASE("a start does not wait for neighbours that have not looked at their mail", "[mpi][ends]") {
  test::skip_on_devices("the host looks into what its ranks share");
  Communicator communicator = Communicator::world();
  Communicator const messenger = Communicator::world();
  MemoryLedger ledger;
  SharedSegment segment(communicator, ledger, MemoryCategory::buffers, "test", 1 << 16);
  Problem problem = Problem::on_one_node(Collective::all_reduce, Partition::even(4, communicator.size()));
  problem.shared_memory = true;
  std::deque<Execution> executions;
  Arena arena(segment.bytes());
  for (std::uint64_t i = 0; i <= SharedSegment::open_tickets; ++i) {
    executions.emplace_back(ExecutionSpace(), communicator,
                            make_schedule(problem, Algorithm::shared_mailbox, communicator.rank()), Operation::sum,
                            arena.vector<float>("data", 4), Vector<float>(), ExecutionOptions{.segment = &segment});
  }
  ExecutionQueue queue;
  for (std::uint64_t i = 0; i < SharedSegment::open_tickets; ++i) queue.start(executions[i]);
  queue.progress(); // all have come to all their barriers
  if (communicator.rank() == 0) {
    queue.wait_all();
    queue.start(executions.back());
  }
  barrier(messenger); // the others take what is there only now
  if (communicator.rank() > 0) {
    queue.wait_all();
    queue.start(executions.back());
  }
  queue.wait_all();
}
