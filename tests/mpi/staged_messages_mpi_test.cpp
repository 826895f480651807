// Messages that are copied to pinned memory and back, and those of memory on which kernels may still work: nothing that
// others see of a collective changes, whatever the timing, and nothing is sent or complete before it may be.

#include "comm/execution/buffers.hpp"
#include "comm/execution/control.hpp"
#include "comm/execution/mpi.hpp"
#include "core/error.hpp"
#include "support/collective_run.hpp"
#include "support/held_events.hpp"
#include "support/many_collectives.hpp"
#include "support/traffic.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstring>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

Communicator staged_world() {
  Communicator communicator = Communicator::world();
  communicator.use_buffers(MessageBuffers::staged, ExecutionSpace());
  return communicator;
}

bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Calls check(problem, algorithm) for all collectives that send messages alone.
template <class Check>
void for_all_messages(Communicator& communicator, Index elements, Check const& check) {
  for (Collective const collective : collectives) {
    for (Problem problem : test::problems(communicator, collective, !has_data(collective) ? 0 : elements)) {
      problem.shared_memory = false;
      for (Algorithm const algorithm : algorithms_of(collective)) {
        if (!refusal(problem, algorithm).empty()) continue;
        INFO(to_string(collective) << ' ' << to_string(algorithm) << " of " << elements);
        check(problem, algorithm);
      }
    }
  }
}

bool has_mail(Communicator const& communicator) {
  int is_there = 0;
  TRAINSTONE_MPI_CHECK(
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator.handle().comm, &is_there, MPI_STATUS_IGNORE));
  return is_there != 0;
}

/// Of 1000 elements, from rank 0, with staging of its own.
struct Broadcast {
  explicit Broadcast(Communicator& communicator)
      : memory(communicator, schedule_of(communicator),
               std::vector<float>(1000, static_cast<float>(communicator.rank())), {.longest_message = 300}),
        execution(ExecutionSpace(), communicator, schedule_of(communicator), Operation::sum, memory.data.vector(),
                  Vector<float>(), memory.options) {}
  static Schedule schedule_of(Communicator const& communicator) {
    Problem const problem{.collective = Collective::broadcast,
                          .partition = Partition::even(1000, communicator.size()),
                          .topology = communicator.topology()};
    return make_schedule(problem, Algorithm::linear, communicator.rank());
  }
  bool is_right() const { return memory.data.values() == std::vector<float>(1000, 0); }

  test::OwnMemory<float> memory;
  Execution execution;
};

/// Of nobody, as long as all wait here for each other.
void check_no_mail(Communicator const& communicator, Communicator const& messenger) {
  barrier(messenger);
  CHECK_FALSE(has_mail(communicator));
  barrier(messenger);
}

/// It begins, and comes no further while events are held.
void check_held_back(Execution& execution, test::HeldEvents const& held_back) {
  execution.start();
  for (int look = 0; look < 100; ++look) CHECK_FALSE(execution.progress());
  CHECK(held_back.looks() >= 100);
}

} // namespace

TEST_CASE("staged messages end in the bits and counts of the host's, by every algorithm", "[mpi][staged]") {
  Communicator host = test::world(), staged = staged_world();
  test::Workspace on_host(host), on_staged(staged);
  test::HeldEvents const held_back(test::HeldEvents::Until::chance, static_cast<unsigned>(host.rank() + 1));
  for (Index const elements : {0, 1, 117, 737}) {
    for (Index const longest : {7, 1000}) {
      for_all_messages(host, elements, [&](Problem const& problem, Algorithm algorithm) {
        ExecutionOptions const options{.longest_message = longest};
        comm_counters() = {};
        std::vector<float> const expected = on_host.run<float>(problem, algorithm, Operation::sum, options);
        Traffic const counted = comm_counters().at(Purpose::training, problem.collective, algorithm);
        comm_counters() = {};
        std::vector<float> const data = on_staged.run<float>(problem, algorithm, Operation::sum, options);
        CHECK(same_bits(data, expected));
        CHECK(comm_counters().at(Purpose::training, problem.collective, algorithm) == counted);
      });
    }
  }
}

TEST_CASE("staged messages are cut at one MiB, which predictions know", "[mpi][staged]") {
  Communicator staged = staged_world();
  test::Workspace workspace(staged);
  auto const check = [&]<class T>(T, Index elements) {
    for_all_messages(staged, elements, [&](Problem const& problem, Algorithm algorithm) {
      comm_counters() = {};
      std::vector<T> const data = workspace.run<T>(problem, algorithm, Operation::sum);
      CHECK(test::mismatch(problem, Operation::sum, staged.rank(), data) == "");
      Schedule const schedule = make_schedule(problem, algorithm, staged.rank());
      Traffic const counted = comm_counters().at(Purpose::training, problem.collective, algorithm);
      CHECK(counted == predict_traffic(schedule, problem.topology, sizeof(T), staged_message_bytes / sizeof(T)));
      std::uint64_t const peers = static_cast<std::uint64_t>(staged.size()) - 1;
      if (algorithm == Algorithm::naive && peers > 0)
        CHECK(counted.messages == peers * (counted.bytes / peers / 1048576 + 1));
    });
  };
  check(float{}, 300'007);
  check(bf16{}, 600'001);
  check(double{}, 131'072 + 1);
}

TEST_CASE("staged data in pieces ends with the host's bits, and what lies between them stays", "[mpi][staged]") {
  Communicator host = test::world(), staged = staged_world();
  ExecutionSpace const exec;
  Pieces pieces; // out of order, with gaps, neighbours that touch, and a border inside of blocks
  for (Range const& piece : {Range{1500, 1501}, Range{3, 500}, Range{500, 510}, Range{900, 1401}}) pieces.append(piece);
  test::HeldEvents const held_back(test::HeldEvents::Until::chance, static_cast<unsigned>(host.rank() + 1));
  std::vector<float> values(static_cast<std::size_t>(pieces.extent()) + 7, -77);
  for (Index i = 0; i < pieces.elements(); ++i)
    values[static_cast<std::size_t>(pieces.place(i))] = static_cast<float>(i + 1) / static_cast<float>(3 + host.rank());
  auto const run = [&](Communicator& communicator, Schedule const& schedule) {
    test::OwnMemory<float> const memory(communicator, schedule, values, {.longest_message = 400, .pieces = pieces});
    Execution(exec, communicator, schedule, Operation::sum, memory.data.vector(), memory.scratch.vector(),
              memory.options)
        .run();
    return memory.data.values();
  };
  for_all_messages(host, pieces.elements(), [&](Problem const& problem, Algorithm algorithm) {
    if (!has_data(problem.collective)) return;
    Schedule const schedule = make_schedule(problem, algorithm, host.rank());
    CHECK(same_bits(run(staged, schedule), run(host, schedule)));
  });
}

TEST_CASE("many held collectives in flight end right, waited for in another order on every rank", "[mpi][staged]") {
  bool const copies = GENERATE(true, false);
  Communicator communicator = copies ? staged_world() : test::world();
  Problem problem = test::problems(communicator, Collective::all_reduce, 1009)[0];
  problem.shared_memory = false;
  test::ManyCollectives many(communicator, problem);
  test::HeldEvents const held_back(test::HeldEvents::Until::chance, static_cast<unsigned>(communicator.rank() + 1));
  for (int repeat = 0; repeat < 3; ++repeat) check_in_any_order(many, problem, communicator.rank());
}

TEST_CASE("staged messages go through the port of an emulated network", "[mpi][staged]") {
  Communicator communicator = staged_world();
  constexpr double latency = 2e-3;
  communicator.emulate_network(EmulatedNetwork::uniform({.latency = latency}));
  Broadcast broadcast(communicator);
  barrier(communicator);
  auto const start = std::chrono::steady_clock::now();
  broadcast.execution.run();
  std::chrono::duration<double> const seconds = std::chrono::steady_clock::now() - start;
  CHECK(broadcast.is_right());
  if (communicator.rank() == 0) CHECK(seconds.count() >= 4 * latency * (communicator.size() - 1)); // 4 messages each
}

TEST_CASE("MPI is given nothing before it is copied out, and nothing is complete before it is copied in",
          "[mpi][staged]") {
  Communicator communicator = staged_world();
  Communicator const messenger = Communicator::world();
  bool const sends = communicator.rank() == 0;
  Broadcast broadcast(communicator);
  if (communicator.size() == 1) return;
  { // the root's copies are under way
    test::HeldEvents const held_back(test::HeldEvents::Until::release);
    if (sends) check_held_back(broadcast.execution, held_back);
    check_no_mail(communicator, messenger);
  }
  if (sends) broadcast.execution.wait();
  barrier(messenger);
  if (sends) return;
  { // everything is here, the others' copies are under way
    test::HeldEvents const held_back(test::HeldEvents::Until::release);
    broadcast.execution.start();
    while (held_back.looks() < 100) CHECK_FALSE(broadcast.execution.progress());
  }
  broadcast.execution.wait();
  CHECK(broadcast.is_right());
}

TEST_CASE("MPI is given memory itself once the kernels before have ended, for which no rank waits", "[mpi][staged]") {
  Communicator communicator = test::world();
  if (communicator.buffers() == MessageBuffers::staged) SKIP("MPI does not take this device's memory");
  Communicator const messenger = Communicator::world();
  Broadcast broadcast(communicator);
  if (communicator.size() == 1) return;
  {
    test::HeldEvents const held_back(test::HeldEvents::Until::release);
    check_held_back(broadcast.execution, held_back);
    check_no_mail(communicator, messenger);
  }
  if (communicator.rank() == 0) {
    broadcast.execution.progress();
  } else {
    while (!has_mail(communicator)) {
    } // the root's: nothing is received yet
  }
  broadcast.execution.wait();
  CHECK(broadcast.is_right());
}

TEST_CASE("an exception withdraws staged messages, whose copies then have ended", "[mpi][staged]") {
  Communicator communicator = staged_world();
  Communicator const messenger = Communicator::world();
  auto const start_and_fail = [&] {
    test::HeldEvents const held_back(test::HeldEvents::Until::release); // nothing is sent
    Broadcast broadcast(communicator);
    broadcast.execution.start();
    CHECK(broadcast.execution.progress() == (communicator.size() == 1));
    throw Error("of the caller");
  };
  CHECK_THROWS_WITH(start_and_fail(), ContainsSubstring("of the caller"));
  check_no_mail(communicator, messenger);
  Broadcast another(communicator);
  another.execution.run();
  CHECK(another.is_right());
}

TEST_CASE("buffers belong to the communicator, and to those that are made of it", "[mpi][staged]") {
  Communicator communicator = staged_world();
  CHECK(communicator.split(0).buffers() == MessageBuffers::staged);
  CHECK(communicator.first(communicator.size())->buffers() == MessageBuffers::staged);
  {
    Communicator part = communicator.split(0);
    test::HeldEvents const held_back(test::HeldEvents::Until::chance);
    Broadcast(part).execution.run();
    CHECK((held_back.looks() > 0) == (part.size() > 1));
  }
  // what the host agrees on needs none
  CHECK(control_all_reduce(ExecutionSpace(), communicator, Operation::sum, 1.0) == communicator.size());
  MessageBuffers const usual = usual_buffers(communicator, ExecutionSpace());
  communicator.use_buffers(usual, ExecutionSpace());
  CHECK(communicator.split(0).buffers() == usual);
}

TEST_CASE("too little staging is refused where messages are staged", "[mpi][staged]") {
  Communicator communicator = staged_world();
  if (communicator.size() == 1) return; // nothing is sent
  test::DeviceTensor<float> const data(128, 1), scratch(128, 0);
  std::vector<std::byte> staging(1024);
  Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(128, communicator.size()));
  Schedule const ring = make_schedule(problem, Algorithm::ring, communicator.rank());
  auto const make = [&](std::size_t bytes) {
    Execution(ExecutionSpace(), communicator, ring, Operation::sum, data.vector(), scratch.vector(),
              {.staging = std::span(staging).first(bytes)});
  };
  auto const needed = static_cast<std::size_t>(staging_bytes(MessageBuffers::staged, ring, sizeof(float)));
  CHECK_NOTHROW(make(needed));
  CHECK_THROWS_WITH(make(needed - 1),
                    ContainsSubstring(fmt::format("need {} bytes of staging, there are {}", needed, needed - 1)));
  CHECK_THROWS_WITH(make(0), ContainsSubstring("all_reduce ring"));
}
