// Algorithms of shared memory whose kernels are still under way when the host looks: a rank comes to a barrier of its
// node, and gives back a ticket, once its kernels have ended, and no rank waits for them but in wait().

#include "comm/execution/control.hpp"
#include "support/collective_run.hpp"
#include "support/held_events.hpp"
#include "support/many_collectives.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>

#include <optional>

using namespace trainstone;
using Until = test::HeldEvents::Until;

namespace {

/// An all-reduce of 4 elements in memory that the ranks share.
struct SharedSum {
  SharedSum(Communicator& communicator, Algorithm algorithm)
      : segment(communicator, ledger, MemoryCategory::buffers, "test", 4096),
        values(Arena(segment.bytes()).vector<float>("data", 4)),
        execution(ExecutionSpace(), communicator, schedule_of(communicator, algorithm), Operation::sum, values,
                  Vector<float>(), {.segment = &segment}),
        ranks(communicator.size()) {
    std::vector<float> const mine(4, static_cast<float>(communicator.rank() + 1));
    copy_from_host<float>(ExecutionSpace(), mine, values, "trainstone::test: neighbours read the data");
  }
  static Schedule schedule_of(Communicator const& communicator, Algorithm algorithm) {
    Problem problem = Problem::on_one_node(Collective::all_reduce, Partition::even(4, communicator.size()));
    problem.shared_memory = true;
    return make_schedule(problem, algorithm, communicator.rank());
  }
  bool is_right() const {
    std::vector<float> const expected(4, static_cast<float>(ranks * (ranks + 1) / 2));
    return copy_to_host<float>(ExecutionSpace(), values, "trainstone::test: the host reads the result") == expected;
  }

  MemoryLedger ledger;
  SharedSegment segment;
  Vector<float> values;
  Execution execution;
  Rank ranks;
};

/// It comes no further while events are held.
void check_held_back(Execution& execution, test::HeldEvents const& held) {
  int const before = held.looks();
  for (int look = 0; look < 100; ++look) CHECK_FALSE(execution.progress());
  CHECK(held.looks() >= before + 100);
}

/// Of all ranks, as long as they wait here for each other.
template <class Look>
void check_that_all(Communicator const& messenger, Look const& look) {
  barrier(messenger);
  CHECK(look());
  barrier(messenger);
}

} // namespace

TEST_CASE("a rank comes to a barrier of its node once its kernels have ended, and not before", "[mpi][late_kernels]") {
  Communicator communicator = test::world();
  if (communicator.size() == 1 || communicator.nodes().count > 1) return;
  Communicator const messenger = Communicator::world();
  bool const late = communicator.rank() == 0;
  auto const check = [&](Algorithm algorithm, std::uint64_t step) {
    SharedSum sum(communicator, algorithm);
    if (step > 0) sum.execution.start(); // with what it is held back for behind the first barrier
    barrier(messenger);
    {
      std::optional<test::HeldEvents> held;
      if (late) held.emplace(Until::release);
      if (step == 0) sum.execution.start();
      if (late) check_held_back(sum.execution, *held);
      check_that_all(messenger, [&] { return !sum.execution.progress() && !sum.segment.all_arrived(0, step); });
    }
    sum.execution.wait();
    CHECK(sum.is_right());
    barrier(messenger);
  };
  for (Algorithm const algorithm : {Algorithm::shared, Algorithm::shared_copy, Algorithm::shared_mailbox})
    check(algorithm, 0);
  for (Algorithm const algorithm : {Algorithm::shared, Algorithm::shared_copy}) check(algorithm, 1);
}

TEST_CASE("a ticket is given back once the kernels that read neighbours' mail have ended", "[mpi][late_kernels]") {
  Communicator communicator = test::world();
  if (communicator.size() == 1 || communicator.nodes().count > 1) return;
  Communicator const messenger = Communicator::world();
  SharedSum sum(communicator, Algorithm::shared_mailbox);
  auto const is_free = [&] { return sum.segment.is_free(SharedSegment::open_tickets); }; // the same place
  bool const late = communicator.rank() == 0;
  if (late) {
    sum.execution.start();
    CHECK_FALSE(sum.execution.progress()); // has come, as the first one
  }
  barrier(messenger);
  if (!late) sum.execution.start();
  if (!late) sum.execution.wait();
  barrier(messenger); // all have come
  {
    std::optional<test::HeldEvents> held;
    if (late) {
      held.emplace(Until::release);
      check_held_back(sum.execution, *held);
      CHECK(sum.execution.in_flight());
    }
    check_that_all(messenger, [&] { return !is_free(); });
  }
  sum.execution.wait();
  CHECK(sum.is_right());
  check_that_all(messenger, is_free);
}

TEST_CASE("late kernels change no bits of algorithms of shared memory", "[mpi][late_kernels]") {
  Communicator communicator = test::world();
  test::Workspace workspace(communicator);
  for (Collective const collective : collectives)
    for (Problem const& problem : test::problems(communicator, collective, has_data(collective) ? 117 : 0))
      for (Algorithm const algorithm : algorithms_of(collective)) {
        if (!find_algorithm(collective, algorithm).uses_shared_memory() || !refusal(problem, algorithm).empty())
          continue;
        INFO(to_string(collective) << ' ' << to_string(algorithm));
        std::vector<float> const expected = workspace.run<float>(problem, algorithm, Operation::sum);
        test::HeldEvents const held(Until::chance, static_cast<unsigned>(communicator.rank() + 1));
        CHECK(workspace.run<float>(problem, algorithm, Operation::sum) == expected);
      }
  Problem const problem = test::problems(communicator, Collective::all_reduce, 109)[0];
  test::ManyCollectives many(communicator, problem);
  test::HeldEvents const held(Until::chance, static_cast<unsigned>(communicator.rank() + 1));
  for (int repeat = 0; repeat < 3; ++repeat) check_in_any_order(many, problem, communicator.rank());
}
