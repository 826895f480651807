// Segments whose parts are memory of a device that neighbours map, played on a host.

#include "comm/execution/control.hpp"
#include "comm/execution/node_memory.hpp"
#include "comm/execution/shared_overhead.hpp"
#include "parallel/engine/replica_check.hpp"
#include "support/held_events.hpp"
#include "support/many_collectives.hpp"
#include "support/played_export.hpp"
#include "support/training_run.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>

#include <optional>

using namespace trainstone;
using test::FaultOfOne;
using Fault = test::PlayedExport::Fault;

namespace {

/// The result of every algorithm of shared memory, in one vector after the other.
std::vector<std::vector<float>> run_all(Communicator& communicator) {
  test::Workspace workspace(communicator);
  std::vector<std::vector<float>> results;
  for (Collective const collective : collectives)
    for (Index const elements : {0, 1, 117, 737}) {
      if (has_data(collective) == (elements == 0)) continue;
      for (Problem const& problem : test::problems(communicator, collective, elements))
        for (Algorithm const algorithm : algorithms_of(collective))
          if (find_algorithm(collective, algorithm).uses_shared_memory() && refusal(problem, algorithm).empty())
            results.push_back(workspace.run<float>(problem, algorithm, Operation::sum));
    }
  return results;
}

std::vector<std::byte> first_bytes(SharedSegment const& segment, std::size_t neighbour) {
  std::byte const* const begin = segment.part(neighbour);
  return {begin, begin + segment.part_bytes(neighbour)};
}

} // namespace

TEST_CASE("algorithms of shared memory end with the same bits where neighbours map each other's parts",
          "[mpi][exported]") {
  test::skip_on_devices("which it plays");
  for (int const nodes : {1, 2}) {
    if (nodes > Communicator::world().size()) continue;
    Communicator communicator = test::world(nodes);
    std::vector<std::vector<float>> const expected = run_all(communicator);
    CHECK_FALSE(expected.empty());
    test::PlayedExport const played;
    CHECK(run_all(communicator) == expected);
    test::HeldEvents const held(test::HeldEvents::Until::chance, static_cast<unsigned>(communicator.rank() + 1));
    CHECK(run_all(communicator) == expected);
    communicator.use_buffers(MessageBuffers::staged, ExecutionSpace());
    CHECK(run_all(communicator) == expected);
    Problem const problem = test::problems(communicator, Collective::all_reduce, 109)[0];
    test::ManyCollectives many(communicator, problem);
    for (int repeat = 0; repeat < 3; ++repeat) check_in_any_order(many, problem, communicator.rank());
  }
}

TEST_CASE("an exported part is zero, counted once, and mapped once by every neighbour", "[mpi][exported]") {
  test::skip_on_devices("which it plays");
  Communicator const world = Communicator::world();
  test::PlayedExport const played;
  MemoryLedger ledger;
  std::uint64_t const page = Impl::page_bytes(), unit = 1 << 16, bytes = 3 * unit + 5;
  {
    barrier(world); // all have left what tests before have made
    SharedSegment const segment(world, ledger, MemoryCategory::gradients, "test", bytes);
    CHECK(test::PlayedExport::allocated() == 1);
    CHECK(test::PlayedExport::mapped() == segment.neighbours().size() - 1);
    CHECK(ledger.current()[MemoryCategory::gradients] == bytes);
    // flags: a kilobyte for each ticket and a cache line, in whole pages. In the part's units: a kilobyte of mail for
    // each ticket, and the part
    std::uint64_t const flags = (64 * 1024 + 64 + page - 1) / page * page, part = 5 * unit;
    CHECK(ledger.current().total() == flags + part);
    CHECK(ledger.current()[MemoryCategory::buffers] == shared_overhead(bytes));
    for (std::size_t n = 0; n < segment.neighbours().size(); ++n) {
      CHECK(first_bytes(segment, n) == std::vector<std::byte>(bytes));
      constexpr std::uint64_t last = SharedSegment::open_tickets - 1, mail = SharedSegment::mailbox_bytes;
      for (std::uint64_t ticket = 0; ticket < last; ++ticket) // no mailbox lies on another one, or on the part
        CHECK(segment.mailbox(ticket, n) + mail <= segment.mailbox(ticket + 1, n));
      CHECK(segment.mailbox(last, n) + mail <= segment.part(n));
      CHECK(segment.mailbox(last + 1, n) == segment.mailbox(0, n));
    }
    CHECK(segment.contains(segment.bytes().data(), bytes));
    CHECK_FALSE(segment.contains(segment.bytes().data(), bytes + 1));
    barrier(world);
  }
  CHECK(ledger.current().total() == 0);
}

TEST_CASE("an exported part is freed when no neighbour has it mapped, and nobody waits for that", "[mpi][exported]") {
  test::skip_on_devices("which it plays");
  Communicator const world = Communicator::world();
  test::PlayedExport const played;
  MemoryLedger ledger;
  auto const make = [&](std::optional<SharedSegment>& segment) {
    segment.emplace(world, ledger, MemoryCategory::buffers, "test", 16);
  };
  if (world.size() == 1) return; // no neighbour
  barrier(world);                // all have left what tests before have made
  std::optional<SharedSegment> segment, next;
  make(next);
  CHECK(test::PlayedExport::allocated() == 1);
  make(segment);
  if (world.rank() == 0) segment.reset();
  barrier(world); // the first rank has come through
  CHECK(test::PlayedExport::allocated() == 2);
  CHECK(test::PlayedExport::mapped() == (world.rank() == 0 ? 1u : 2u) * (next->neighbours().size() - 1));
  segment.reset();
  barrier(world);
  next.reset();
  barrier(world);
  make(segment);
  CHECK(test::PlayedExport::allocated() == 1);
  CHECK(test::PlayedExport::mapped() == segment->neighbours().size() - 1);
  barrier(world);
}

TEST_CASE("memory that a rank cannot export or map is refused on all ranks, and nothing is left", "[mpi][exported]") {
  test::skip_on_devices("which it plays");
  Communicator const world = Communicator::world();
  if (world.size() == 1) return; // maps nothing
  test::PlayedExport const played;
  MemoryLedger ledger;
  auto const make = [&] { return SharedSegment(world, ledger, MemoryCategory::buffers, "test", 16); };
  static_cast<void>(make());
  barrier(world);
  std::optional<SharedSegment> const kept(make());
  std::size_t const allocated = test::PlayedExport::allocated(), mapped = test::PlayedExport::mapped();
  auto const words_with = [&](Fault fault) {
    FaultOfOne const one(world, fault);
    try {
      make();
    } catch (CollectiveError const& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  std::string const last = fmt::format("rank {}", world.size() - 1);
  CHECK(words_with(Fault::allocates_nothing) ==
        last + " cannot export 131072 bytes for test: played device: no memory");
  CHECK(words_with(Fault::maps_nothing) ==
        last + " cannot map its neighbours' memory for test: played device: cannot map");
  CHECK(test::PlayedExport::allocated() == allocated);
  CHECK(test::PlayedExport::mapped() == mapped);
  CHECK(ledger.current().total() == 16 + shared_overhead(16));
  barrier(world);
}

TEST_CASE("a training in exported parts ends with the bits and bytes of one in pages", "[mpi][exported]") {
  test::skip_on_devices("which it plays");
  Communicator world = Communicator::world();
  RunConfig config = test::training_config({2, 3, 12, 11, 29}, {1, 2, 2 * world.size()});
  config.comm.allreduce = config.comm.reduce_scatter = config.comm.all_gather = "shared";
  auto const hash_after = [&](ParallelConfig const& parallel) {
    config.parallel = parallel;
    comm_counters() = {};
    test::TrainingRun run(world, config);
    for (std::int64_t step = 1; step <= 2; ++step) run.trainer.step(step);
    CHECK(run.ledger.high_water() == run.plan.memory_bytes());
    CHECK(comm_counters().total(Purpose::training) == 2 * run.plan.step_sent());
    return compare_replicas(run.exec, world, run.trainer.engine()).hash.value;
  };
  for (ParallelConfig const& parallel :
       {ParallelConfig{.strategy = Strategy::ddp}, ParallelConfig{.strategy = Strategy::zero, .zero_stage = 1},
        ParallelConfig{.strategy = Strategy::zero, .zero_stage = 3}}) {
    std::uint64_t const expected = hash_after(parallel);
    test::PlayedExport const played;
    test::HeldEvents const held(test::HeldEvents::Until::chance, static_cast<unsigned>(world.rank() + 1));
    CHECK(hash_after(parallel) == expected);
  }
}
