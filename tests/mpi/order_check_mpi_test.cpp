// The order check: ranks that call different collectives are told which, on every rank, and ranks that call the same
// never wait for each other because of it.

#include "comm/execution/control.hpp"
#include "comm/execution/execution_queue.hpp"
#include "comm/execution/order_check.hpp"
#include "core/error.hpp"
#include "support/collective_run.hpp"
#include "support/many_collectives.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <optional>
#include <thread>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using test::ManyCollectives;

namespace {

void run(Communicator& communicator, Problem const& problem, Algorithm algorithm = Algorithm::ring,
         Index longest_message = longest_mpi_message) {
  ExecutionSpace const exec;
  Schedule const schedule = make_schedule(problem, algorithm, communicator.rank());
  std::vector<float> const zeros(static_cast<std::size_t>(schedule.elements), 0);
  test::OwnMemory<float> const memory(communicator, schedule, zeros, {.longest_message = longest_message});
  Execution(exec, communicator, schedule, Operation::sum, memory.data.vector(), memory.scratch.vector(), memory.options)
      .run();
}

Problem even_problem(Communicator const& communicator, Collective collective, Index elements) {
  return {.collective = collective,
          .partition = Partition::even(elements, communicator.size()),
          .topology = communicator.topology()};
}

} // namespace

TEST_CASE("ranks that call different collectives are told which, on every rank", "[mpi][order]") {
  Communicator communicator = test::world();
  if (communicator.size() == 1) return;
  communicator.check_order(OrderCheck::yes);
  auto const start = [&](Index elements, Algorithm algorithm) {
    run(communicator, even_problem(communicator, Collective::all_reduce, elements), algorithm);
  };
  CHECK_NOTHROW(start(12, Algorithm::ring));
  std::uint64_t const hash = communicator.order_hash();
  for (std::uint64_t const other : all_gather_values(communicator, hash)) CHECK(other == hash);

  bool const last = communicator.rank() + 1 == communicator.size();
  CHECK_THROWS_WITH(start(last ? 13 : 12, Algorithm::ring),
                    ContainsSubstring("all_reduce ring sum float32 of 12 elements") &&
                        ContainsSubstring(fmt::format("rank {}: all_reduce ring sum float32 of 13 elements",
                                                      communicator.size() - 1)));
  CHECK_THROWS_WITH(start(12, last ? Algorithm::tree : Algorithm::ring), ContainsSubstring("all_reduce tree"));
  auto const call = [&] { last ? barrier(communicator) : start(12, Algorithm::ring); };
  CHECK_THROWS_WITH(call(), ContainsSubstring("barrier of a report"));
  CHECK(communicator.order_hash() != hash);
}

TEST_CASE("an order that differs on a part of the world is no error of all ranks", "[mpi][order]") {
  Communicator world = test::world();
  if (world.size() < 3) return;
  world.check_order(OrderCheck::yes);
  Communicator part = world.split(world.rank() == 0 ? 0 : 1);
  bool const last = world.rank() + 1 == world.size();
  bool of_all = false, thrown = false;
  if (world.rank() > 0) {
    try {
      last ? barrier(part) : run(part, even_problem(part, Collective::all_reduce, 12));
    } catch (Error const& error) {
      thrown = true;
      of_all = dynamic_cast<CollectiveError const*>(&error) != nullptr;
    }
  }
  CHECK(thrown == (world.rank() > 0));
  CHECK_FALSE(of_all);
}

TEST_CASE("a checked order lets ranks wait for each other between two starts", "[mpi][order]") {
  Communicator communicator = test::world();
  Communicator const messenger = Communicator::world();
  communicator.check_order(OrderCheck::yes);
  Problem const problem = test::problems(communicator, Collective::all_reduce, 1009)[0];
  ManyCollectives many(communicator, problem);
  for (Rank waiting = 0; waiting < communicator.size(); ++waiting) {
    many.fill(problem, communicator.rank());
    ExecutionQueue queue;
    bool const waits = communicator.rank() == waiting;
    queue.start(many.executions[0]);
    if (waits) barrier(messenger); // the others come here after all their starts
    for (std::size_t i = 1; i < many.executions.size(); ++i) queue.start(many.executions[i]);
    if (!waits) barrier(messenger);
    queue.wait_all();
    check_results(many, problem, communicator.rank());
  }
}

TEST_CASE("a rank that has started more than others is told what differs, and can end", "[mpi][order]") {
  Communicator communicator = test::world();
  if (communicator.size() == 1) return;
  communicator.check_order(OrderCheck::yes);
  Problem const problem = test::problems(communicator, Collective::all_reduce, 1009)[0];
  auto const run = [&] {
    ManyCollectives many(communicator, problem);
    ExecutionQueue queue;
    bool const is_last = communicator.rank() + 1 == communicator.size();
    queue.start(many.executions[is_last ? 1 : 0]);
    if (!is_last) queue.start(many.executions[2]);
    queue.wait_all();
  };
  CHECK_THROWS_WITH(run(), ContainsSubstring("all_reduce naive") && ContainsSubstring("all_reduce whole_ring"));
}

TEST_CASE("an order is checked on a progress that is polled, and nothing is in flight after an error", "[mpi][order]") {
  Communicator communicator = test::world();
  if (communicator.size() == 1) return;
  communicator.check_order(OrderCheck::yes);
  Problem const problem = test::problems(communicator, Collective::all_reduce, 1009)[0];
  ManyCollectives many(communicator, problem);
  Execution& execution = many.executions[communicator.rank() == 0 ? 0 : 1];
  auto const poll = [&] {
    execution.start();
    while (!execution.progress()) std::this_thread::yield();
  };
  CHECK_THROWS_AS(poll(), CollectiveError);
  CHECK_FALSE(execution.in_flight());
}

TEST_CASE("a rank that has left is named to those that go on", "[mpi][order]") {
  Communicator world = test::world();
  if (world.size() == 1) return;
  std::optional<Communicator> copy = world.first(world.size());
  copy->check_order(OrderCheck::yes);
  if (world.rank() == 0) { // prints a line of its own to stderr
    copy.reset();
    return;
  }
  CHECK_THROWS_WITH(barrier(*copy), ContainsSubstring("rank 0: the end of the communicator"));
  copy->check_order(OrderCheck::no);
}

TEST_CASE("ranks that agree on kind and length, but on nothing else, are told in what they differ", "[mpi][order]") {
  Communicator communicator = test::world();
  Rank const ranks = communicator.size();
  if (ranks == 1) return;
  communicator.check_order(OrderCheck::yes);
  bool const last = communicator.rank() + 1 == ranks;
  Index const elements = 12 * ranks;
  Problem problem = even_problem(communicator, Collective::all_reduce, elements);
  auto const last_rank = ContainsSubstring(fmt::format("rank {}: ", ranks - 1));
  SECTION("blocks") {
    std::vector<Index> sizes(static_cast<std::size_t>(ranks), 12);
    ++sizes.front();
    --sizes.back();
    if (last) problem.partition = Partition::of_sizes(sizes);
    CHECK_THROWS_WITH(run(communicator, problem), last_rank && ContainsSubstring("placement "));
  }
  SECTION("nodes") {
    if (last) problem.topology = Topology::block(ranks, 2);
    CHECK_THROWS_WITH(run(communicator, problem), last_rank && ContainsSubstring("placement "));
  }
  SECTION("root") {
    problem.collective = Collective::broadcast;
    problem.root = last ? 1 : 0;
    CHECK_THROWS_WITH(
        run(communicator, problem, Algorithm::binomial),
        last_rank && ContainsSubstring(fmt::format("broadcast binomial float32 of {} elements, root 1", elements)));
  }
  SECTION("servers") {
    if (ranks == 2) return;
    Rank const servers = last ? 2 : 1;
    problem.collective = Collective::server_push;
    problem.servers = servers;
    problem.partition = server_partition(elements, ranks - servers, servers);
    CHECK_THROWS_WITH(run(communicator, problem, Algorithm::direct), last_rank && ContainsSubstring("2 servers"));
  }
  SECTION("segment") {
    problem.segment = last ? 3 : 4;
    CHECK_THROWS_WITH(run(communicator, problem, Algorithm::segmented_ring),
                      last_rank && ContainsSubstring("segments of 3"));
  }
  SECTION("longest message") {
    CHECK_THROWS_WITH(run(communicator, problem, Algorithm::ring, last ? 5 : longest_mpi_message),
                      last_rank && ContainsSubstring("messages of at most 5"));
  }
  SECTION("the order in which the executions were made") {
    HeldTag const tag = communicator.take_tag();
    std::optional<HeldTag> another;
    if (last) another.emplace(communicator.take_tag());
    CHECK_THROWS_WITH(run(communicator, problem),
                      last_rank && ContainsSubstring(fmt::format("tag {}", tag.value() + 2)));
  }
}

TEST_CASE("calls that differ at the end of a long text are told apart", "[mpi][order]") {
  Communicator communicator = test::world();
  if (communicator.size() == 1) return;
  communicator.check_order(OrderCheck::yes);
  std::string const text(1000, 'x');
  CHECK_NOTHROW(communicator.announce(CollectiveCall(text))->wait());
  CHECK_THROWS_AS(communicator.announce(CollectiveCall(text + (communicator.rank() == 0 ? "a" : "b")))->wait(),
                  CollectiveError);
}

TEST_CASE("of several differences all ranks are told the first, whichever call they wait for", "[mpi][order]") {
  Communicator communicator = test::world();
  if (communicator.size() == 1) return;
  communicator.check_order(OrderCheck::yes);
  bool const last = communicator.rank() + 1 == communicator.size();
  CollectiveCall const common("the same"), mine(last ? "late" : "early"), later(last ? "beta" : "alpha");
  auto const zeroth = communicator.announce(common), first = communicator.announce(mine),
             second = communicator.announce(common), third = communicator.announce(later);
  for (auto const* comparison : {&third, &second, &first})
    CHECK_THROWS_WITH((*comparison)->wait(), ContainsSubstring("early; rank") && ContainsSubstring(": late"));
  CHECK_NOTHROW(zeroth->wait());
}

TEST_CASE("after an error a queue is of no more use, and its executions may end where it was caught", "[mpi][order]") {
  Communicator communicator = test::world();
  if (communicator.size() == 1) return;
  communicator.check_order(OrderCheck::yes);
  Problem const problem = test::problems(communicator, Collective::all_reduce, 1009)[0];
  ManyCollectives many(communicator, problem);
  ExecutionQueue queue;
  Execution& mine = many.executions[communicator.rank() == 0 ? 0 : 1];
  queue.start(mine);
  queue.start(many.executions[2]);
  CHECK_THROWS_AS(queue.wait(many.executions[2]), CollectiveError); // all agree on it, but not on the one before
  CHECK_THROWS_AS(queue.wait(mine), CollectiveError);
  CHECK_THROWS_AS(queue.progress(), CollectiveError);
  CHECK_THROWS_AS(queue.wait_all(), CollectiveError);
}

TEST_CASE("a rank that gives up is named to those that go on", "[mpi][order]") {
  Communicator world = test::world();
  if (world.size() == 1 || world.size() > 3) return; // with more, rank 1 passes on what it gets
  std::optional<Communicator> copy = world.first(world.size());
  copy->check_order(OrderCheck::yes);
  auto const start_and_fail = [&] {
    Schedule const schedule =
        make_schedule(even_problem(*copy, Collective::broadcast, 8), Algorithm::binomial, copy->rank());
    test::OwnMemory<float> const memory(*copy, schedule, std::vector<float>(8, 1));
    Execution execution(ExecutionSpace(), *copy, schedule, Operation::sum, memory.data.vector(), Vector<float>(),
                        memory.options);
    execution.start();
    if (copy->rank() == 1) throw Error("of the caller");
    execution.wait();
  };
  if (world.rank() == 1) {
    CHECK_THROWS_AS(start_and_fail(), Error);
    copy.reset();
  } else {
    CHECK_NOTHROW(start_and_fail()); // the messages are short, and nobody waits for rank 1
    CHECK_THROWS_WITH(barrier(*copy), ContainsSubstring("rank 1: the end of the communicator after an error"));
  }
}

TEST_CASE("making parts of a communicator is compared, and so are the calls of the parts", "[mpi][order]") {
  Communicator communicator = test::world();
  if (communicator.size() == 1) return;
  communicator.check_order(OrderCheck::yes);
  Communicator part = communicator.split(0);
  bool const last = part.rank() + 1 == part.size();
  CHECK_THROWS_WITH(run(part, even_problem(part, Collective::all_reduce, last ? 7 : 8)),
                    ContainsSubstring("of 7 elements"));
  auto const call = [&] { last ? static_cast<void>(communicator.split(0)) : barrier(communicator); };
  CHECK_THROWS_WITH(call(), ContainsSubstring("split of the communicator"));
}
