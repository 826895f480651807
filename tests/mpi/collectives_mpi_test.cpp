// Every registered algorithm on real ranks: right against the definition and against MPI's own collective, counted as
// predicted, the same bits in every run, and unimpressed by delays.

#include "comm/algorithms/registry.hpp"
#include "comm/execution/control.hpp"
#include "comm/measurement/mpi_collective.hpp"
#include "support/collective_data.hpp"
#include "support/collective_run.hpp"
#include "support/traffic.hpp"
#include "support/world.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

using namespace trainstone;
using test::problems;
using test::Workspace;

namespace {

template <class T>
void check_against_mpi(ExecutionSpace const& exec, Communicator& communicator, Problem const& problem,
                       Operation operation) {
  if (!mpi_refusal(problem, element_type_of<T>()).empty()) return;
  Rank const rank = communicator.rank();
  for (MpiForm const form : mpi_forms(problem)) {
    test::DeviceTensor<T> const data(test::input<T>(problem, rank));
    auto const apart = static_cast<std::size_t>(mpi_scratch_elements(problem, rank, form));
    test::DeviceTensor<T> const scratch{std::vector<T>(apart)};
    std::uint64_t const copies = mpi_staging_bytes(communicator.buffers(), problem, rank, sizeof(T), form);
    MemoryLedger ledger;
    PinnedMemory staging(ledger, "test", memory_footprint(copies));
    MpiCollective reference(exec, communicator, problem, operation, data.vector(), scratch.vector(),
                            staging.take(copies), form);
    reference.run();
    INFO("MPI's own " << to_string(problem.collective) << ", " << to_string(form));
    CHECK(test::mismatch(problem, operation, communicator.rank(), data.values()) == "");
  }
}

std::string describe(Problem const& problem, Algorithm algorithm) {
  return fmt::format("{} {} of {} elements, first block {}, root {}, {} servers, on {} nodes",
                     to_string(problem.collective), to_string(algorithm), problem.elements(), problem.partition.size(0),
                     problem.root, problem.servers, problem.topology.nodes());
}

template <class T>
void check_all_algorithms(Communicator& communicator, Workspace& workspace, Problem const& problem,
                          Operation operation) {
  for (Algorithm const algorithm : algorithms_of(problem.collective)) {
    if (!refusal(problem, algorithm).empty()) continue;
    INFO(describe(problem, algorithm) << ", " << to_string(operation));
    comm_counters() = {};
    std::vector<T> const first = workspace.run<T>(problem, algorithm, operation);
    CHECK(test::mismatch(problem, operation, communicator.rank(), first) == "");
    Schedule const schedule = make_schedule(problem, algorithm, communicator.rank());
    CHECK(comm_counters().at(Purpose::training, problem.collective, algorithm) ==
          predict_traffic(schedule, problem.topology, sizeof(T), longest_message(communicator.buffers(), sizeof(T))));
    CHECK(comm_counters().total(Purpose::control) == Traffic{});
  }
}

template <class T>
void check_everything(Communicator& communicator, std::vector<Index> const& counts,
                      std::vector<Operation> const& operations) {
  ExecutionSpace const exec;
  Workspace workspace(communicator);
  for (Collective const collective : collectives) {
    for (Index const elements : counts) {
      for (Problem const& problem : problems(communicator, collective, elements)) {
        for (Operation const operation : operations) {
          if (operation != Operation::sum && !adds_up(collective)) continue;
          check_all_algorithms<T>(communicator, workspace, problem, operation);
          check_against_mpi<T>(exec, communicator, problem, operation);
        }
      }
    }
  }
}

} // namespace

TEMPLATE_TEST_CASE("every algorithm of every collective is right, as MPI's own, and counted as predicted",
                   "[mpi][collectives]", float, double, bf16, fp16, std::int32_t, std::int64_t) {
  Communicator communicator = test::world();
  check_everything<TestType>(communicator, {0, 1, communicator.size() - 1, 117, 737},
                             {Operation::sum, Operation::max, Operation::min});
}

TEST_CASE("MPI's own collectives are right where they are given copies of the data", "[mpi][collectives][staged]") {
  Communicator communicator = Communicator::world();
  communicator.use_buffers(MessageBuffers::staged, ExecutionSpace());
  for (Collective const collective : collectives)
    for (Index const elements : {0, 1, 117, 840})
      for (Problem const& problem : problems(communicator, collective, elements))
        check_against_mpi<float>(ExecutionSpace(), communicator, problem, Operation::sum);
}

TEST_CASE("every algorithm of every collective is right on two emulated nodes", "[mpi][collectives]") {
  int const ranks = Communicator::world().size();
  if (ranks < 2) return;
  Communicator communicator = test::world(2);
  REQUIRE(communicator.topology().nodes() == 2);
  check_everything<float>(communicator, {0, 1, 117, 737}, {Operation::sum});
}

TEST_CASE("every algorithm of every collective is right on a million and three elements", "[mpi][collectives]") {
  Communicator communicator = test::world();
  check_everything<float>(communicator, {1'000'003}, {Operation::sum});
}

TEMPLATE_TEST_CASE("every algorithm is right on a million and three elements of every type", "[mpi][collectives]",
                   double, bf16, fp16, std::int32_t, std::int64_t) {
  Communicator communicator = test::world();
  if (communicator.size() > 4) return; // ranks that share cores: fp32 above is enough
  check_everything<TestType>(communicator, {1'000'003}, {Operation::sum});
}
