// A network that is slower than the machine's: what messages take on it, that neither results nor counts change, and
// what becomes of messages that are still kept back when an error ends their collective.

#include "comm/execution/control.hpp"
#include "comm/execution/execution_queue.hpp"
#include "comm/execution/mpi.hpp"
#include "core/error.hpp"
#include "support/collective_run.hpp"
#include "support/traffic.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <deque>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

using Clock = std::chrono::steady_clock;

/// Seconds of a clock that all processes of a machine share.
double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

constexpr EmulatedLink slow_link{.latency = 2e-3, .seconds_per_byte = 1e-6};
EmulatedNetwork const slow = EmulatedNetwork::uniform(slow_link);
constexpr Index elements = 500;
double const message_seconds = slow_link.seconds(elements * sizeof(float)); // 4 ms

Problem broadcast_problem(Communicator const& communicator) {
  return {.collective = Collective::broadcast,
          .partition = Partition::even(elements, communicator.size()),
          .topology = communicator.topology()};
}

/// Of whole buffers, from rank 0.
struct Broadcast {
  explicit Broadcast(Communicator& communicator, bool persistent = true)
      : memory(communicator, schedule_of(communicator),
               std::vector<float>(static_cast<std::size_t>(elements), static_cast<float>(communicator.rank())),
               {.persistent = persistent}),
        execution(ExecutionSpace(), communicator, schedule_of(communicator), Operation::sum, memory.data.vector(),
                  Vector<float>(), memory.options) {}
  static Schedule schedule_of(Communicator const& communicator) {
    return make_schedule(broadcast_problem(communicator), Algorithm::binomial, communicator.rank());
  }
  bool is_right() const { return memory.data.values() == std::vector<float>(static_cast<std::size_t>(elements), 0); }
  /// That this rank sends.
  double messages(Communicator const& communicator) const {
    Traffic const sent = predict_traffic(execution.schedule(), communicator.topology(), sizeof(float));
    return static_cast<double>(sent.messages);
  }

  test::OwnMemory<float> memory;
  Execution execution;
};

bool has_mail(Communicator const& communicator) {
  int is_there = 0;
  TRAINSTONE_MPI_CHECK(
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator.handle().comm, &is_there, MPI_STATUS_IGNORE));
  return is_there != 0;
}

} // namespace

TEST_CASE("a message takes at least latency and bytes over bandwidth", "[mpi][network]") {
  Communicator communicator = test::world();
  communicator.emulate_network(slow);
  for (bool const persistent : {true, false}) {
    Broadcast broadcast(communicator, persistent);
    barrier(communicator);
    double const start = now();
    broadcast.execution.run();
    double const end = now();
    double const root_start = all_gather_values(communicator, start)[0];
    INFO("persistent " << persistent);
    CHECK(broadcast.is_right());
    CHECK(end - start >= broadcast.messages(communicator) * message_seconds);
    if (communicator.rank() > 0) CHECK(end - root_start >= message_seconds);
  }
}

TEST_CASE("a rank's messages queue, also those of communicators that are made of its own", "[mpi][network]") {
  Communicator communicator = test::world();
  communicator.emulate_network(slow);
  Communicator part = communicator.split(0);
  auto first = communicator.first(communicator.size());
  std::deque<Broadcast> broadcasts;
  for (Communicator* const each : {&communicator, &part, &*first, &communicator}) broadcasts.emplace_back(*each);
  ExecutionQueue queue;
  double const start = now();
  for (Broadcast& broadcast : broadcasts) queue.start(broadcast.execution);
  queue.wait_all();
  double const seconds = now() - start;
  CHECK(seconds >= 4 * broadcasts[0].messages(communicator) * message_seconds);
  for (Broadcast const& broadcast : broadcasts) CHECK(broadcast.is_right());
}

namespace {

/// A schedule of one round at most.
Schedule schedule_of(Communicator const& communicator, Index size, Round const& round) {
  Schedule schedule{.collective = Collective::all_reduce,
                    .algorithm = Algorithm::direct,
                    .rank = communicator.rank(),
                    .ranks = communicator.size(),
                    .elements = size,
                    .rounds = {},
                    .neighbours = {}};
  if (!round.empty()) schedule.rounds = {round};
  return schedule;
}

/// A round of this rank, with its memory.
struct OwnRound {
  OwnRound(Communicator& communicator, Index size, Round const& round)
      : memory(communicator, schedule_of(communicator, size, round),
               std::vector<float>(static_cast<std::size_t>(size), 1)),
        execution(ExecutionSpace(), communicator, schedule_of(communicator, size, round), Operation::sum,
                  memory.data.vector(), Vector<float>(), memory.options) {}

  test::OwnMemory<float> memory;
  Execution execution;
};

/// Seconds from the first rank's start to this rank's end.
double seconds_until_end(Communicator& communicator, Schedule const& schedule) {
  test::OwnMemory<float> const memory(
      communicator, schedule, std::vector<float>(static_cast<std::size_t>(schedule.elements), 1), {.persistent = true});
  Execution execution(ExecutionSpace(), communicator, schedule, Operation::sum, memory.data.vector(),
                      memory.scratch.vector(), memory.options);
  barrier(communicator);
  double const start = now();
  execution.run();
  double const end = now();
  return end - std::ranges::min(all_gather_values(communicator, start));
}

} // namespace

TEST_CASE("messages of many senders go through their receiver's port one after the other", "[mpi][network]") {
  Communicator communicator = test::world();
  communicator.emulate_network(slow);
  Problem const problem = even_problem(Collective::gather, elements * communicator.size(), communicator.topology());
  double const seconds =
      seconds_until_end(communicator, make_schedule(problem, Algorithm::linear, communicator.rank()));
  double const senders = communicator.size() - 1; // of `elements` values each, at once
  if (communicator.rank() == 0) CHECK(seconds >= senders * message_seconds);
}

TEST_CASE("ranks of a node share its port to other nodes", "[mpi][network]") {
  int const ranks = Communicator::world().size();
  if (ranks < 4) return; // two pairs
  Communicator communicator = Communicator::world(2);
  Topology const& topology = communicator.topology();
  Rank const pairs = ranks / 2, me = communicator.rank(), first_of_second = topology.members(1).front();
  bool const sends = me < pairs, receives = me >= first_of_second && me < first_of_second + pairs;
  auto const run = [&](bool node_port) {
    communicator.emulate_network({{EmulatedLink{}, slow_link}, node_port});
    Slice const all{BufferId::data, {0, elements}};
    Round round;
    if (sends) round = {Move::send(me + first_of_second, all)};
    if (receives) round = {Move::receive(me - first_of_second, all)};
    Schedule const schedule = schedule_of(communicator, elements, round);
    return std::ranges::max(all_gather_values(communicator, seconds_until_end(communicator, schedule)));
  };
  CHECK(run(true) >= pairs * message_seconds);
  CHECK(run(false) >= message_seconds); // that it takes less than with the port, a busy machine may hide
}

TEST_CASE("a message that has gone through its ports does not wait for an earlier one to another rank",
          "[mpi][network]") {
  if (Communicator::world().size() < 4) return;
  Communicator communicator = test::world();
  communicator.emulate_network(EmulatedNetwork::uniform({.seconds_per_byte = 1e-3}));
  Rank const me = communicator.rank();
  constexpr Index many = 1'000'000; // in rank 1's port for more than an hour
  Slice const all{BufferId::data, {0, many}}, one{BufferId::data, {0, 1}};
  Round long_message, short_messages;
  if (me == 3) long_message = {Move::send(1, all)};
  if (me == 1) long_message = {Move::receive(3, all)};
  if (me == 0) short_messages = {Move::send(1, one), Move::send(2, one)};
  if (me == 1 || me == 2) short_messages = {Move::receive(0, one)};
  OwnRound first(communicator, many, long_message), second(communicator, many, short_messages);
  first.execution.start();
  TRAINSTONE_MPI_CHECK(MPI_Barrier(communicator.handle().comm));
  second.execution.start();
  auto const begin = Clock::now();
  constexpr std::chrono::seconds long_enough(60);
  bool done = me > 2;
  if (me == 2)
    while (!(done = second.execution.progress()) && Clock::now() - begin < long_enough) continue;
  MPI_Request everyone = MPI_REQUEST_NULL;
  TRAINSTONE_MPI_CHECK(MPI_Ibarrier(communicator.handle().comm, &everyone));
  for (int is_over = 0; is_over == 0;) {
    TRAINSTONE_MPI_CHECK(MPI_Test(&everyone, &is_over, MPI_STATUS_IGNORE));
    if (me <= 1) done = second.execution.progress();
  }
  CHECK(done == (me >= 2)); // rank 0 and rank 1 still have their first message
  communicator.give_up();
}

TEST_CASE("a message that is kept back does not keep its sender", "[mpi][network]") {
  Communicator communicator = test::world();
  communicator.emulate_network(
      EmulatedNetwork::uniform({.latency = 1e6})); // whoever waited for it would not come to the end of this test
  Broadcast broadcast(communicator);
  broadcast.execution.start();
  CHECK(broadcast.execution.progress() == (communicator.size() == 1));
  communicator.give_up();
}

TEST_CASE("an emulated network changes neither results nor counts", "[mpi][network]") {
  Communicator communicator = test::world();
  communicator.emulate_network(EmulatedNetwork::uniform({.latency = 2e-6, .seconds_per_byte = 1e-9}));
  test::Workspace workspace(communicator);
  for (Collective const collective : collectives) {
    Index const size = !has_data(collective) ? 0 : 61;
    for (Problem problem : test::problems(communicator, collective, size)) {
      problem.shared_memory = false;
      for (Algorithm const algorithm : algorithms_of(collective)) {
        if (!refusal(problem, algorithm).empty()) continue;
        for (Index const longest : {Index{7}, Index{1000}}) {
          INFO(to_string(collective) << ' ' << to_string(algorithm) << ", messages of at most " << longest);
          comm_counters() = {};
          std::vector<float> const data =
              workspace.run<float>(problem, algorithm, Operation::sum, {.longest_message = longest});
          CHECK(test::mismatch(problem, Operation::sum, communicator.rank(), data) == "");
          Schedule const schedule = make_schedule(problem, algorithm, communicator.rank());
          CHECK(comm_counters().at(Purpose::training, collective, algorithm) ==
                predict_traffic(schedule, problem.topology, sizeof(float), longest));
        }
      }
    }
  }
}

TEST_CASE("moves in shared memory are refused on an emulated network, and only there", "[mpi][network]") {
  test::skip_on_devices("no proof of shared memory is made here");
  Communicator communicator = Communicator::world();
  if (communicator.size() == 1) return; // nothing to share
  test::Workspace workspace(communicator);
  Problem const problem = test::problems(communicator, Collective::all_reduce, 12)[0];
  auto const run = [&] { return workspace.run<float>(problem, Algorithm::shared, Operation::sum); };
  communicator.emulate_network(slow);
  CHECK_THROWS_WITH(run(), ContainsSubstring("all_reduce shared moves data in shared memory"));
  communicator.emulate_network({});
  CHECK_FALSE(communicator.handle().ports);
  CHECK(test::mismatch(problem, Operation::sum, communicator.rank(), run()) == "");
  CHECK_THROWS_AS(communicator.emulate_network(EmulatedNetwork::uniform({.latency = -1})), Error);
  CHECK_THROWS_AS(communicator.emulate_network(EmulatedNetwork::uniform({.seconds_per_byte = 1.0 / 0.0})), Error);
}

TEST_CASE("messages that are kept back when an exception ends their collective are never sent", "[mpi][network]") {
  for (bool const persistent : {true, false}) {
    Communicator communicator = test::world();
    communicator.emulate_network(EmulatedNetwork::uniform({.latency = 1000}));
    Problem const problem{.collective = Collective::all_reduce,
                          .partition = Partition::even(8, communicator.size()),
                          .topology = communicator.topology()};
    Schedule const schedule = make_schedule(problem, Algorithm::ring, communicator.rank());
    test::OwnMemory<float> const memory(communicator, schedule, std::vector<float>(8, 1), {.persistent = persistent});
    auto const start_and_fail = [&] {
      Execution execution(ExecutionSpace(), communicator, schedule, Operation::sum, memory.data.vector(),
                          memory.scratch.vector(), memory.options);
      execution.start();
      CHECK(execution.progress() == (communicator.size() == 1));
      throw Error("of the caller");
    };
    CHECK_THROWS_WITH(start_and_fail(), ContainsSubstring("of the caller"));
    barrier(communicator);
    CHECK_FALSE(has_mail(communicator));
    barrier(communicator); // what follows sends
    CHECK(memory.scratch.values() == std::vector<float>(memory.scratch.size(), 0));
    communicator.emulate_network({});
    CHECK(control_all_reduce(ExecutionSpace(), communicator, Operation::sum, 1.0) == communicator.size());
  }
}
