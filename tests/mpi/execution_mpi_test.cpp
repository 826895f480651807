// How schedules are executed: the same bits in every run and under delays at every point, several collectives in
// flight, a progress by polling, prepared and fresh messages.

#include "comm/execution/control.hpp"
#include "comm/execution/execution_queue.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"
#include "support/collective_run.hpp"
#include "support/many_collectives.hpp"
#include "support/traffic.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <bit>
#include <chrono>
#include <cstring>
#include <deque>
#include <random>
#include <set>
#include <thread>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using test::ManyCollectives;

namespace {

/// While it lives, every delay point waits for a random time now and then, other times on every rank.
class RandomDelays {
public:
  explicit RandomDelays(unsigned seed)
      : m_random(seed), m_hook(delay_point(), [this](char const* label) {
          m_labels.insert(label);
          if (m_random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(m_random() % 300));
        }) {}
  std::set<std::string> const& labels() const { return m_labels; }

private:
  std::minstd_rand m_random;
  std::set<std::string> m_labels;
  DelayPoint::Scoped m_hook;
};

/// Fractions, whose sums depend on the order of additions.
std::vector<float> fractions(Rank rank, Index elements) {
  std::minstd_rand random(static_cast<unsigned>(rank + 1));
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (float& value : values) value = static_cast<float>(random()) / static_cast<float>(random());
  return values;
}

/// What the data of a sum of fractions ends with.
std::vector<float> sum_fractions(test::Workspace& workspace, Problem const& problem, Algorithm algorithm,
                                 bool persistent = true) {
  std::vector<float> const values = fractions(workspace.rank(), problem.elements());
  return workspace.run_on<float>(values, problem, algorithm, Operation::sum, {.persistent = persistent});
}

bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// What the collective defines on this rank.
std::vector<float> defined_part(Problem const& problem, Rank rank, std::vector<float> const& values) {
  Range range{0, 0};
  if (problem.collective == Collective::all_reduce) range = {0, problem.elements()};
  if (problem.collective == Collective::reduce_scatter) range = problem.partition.range(rank);
  if (problem.collective == Collective::reduce && rank == problem.root) range = {0, problem.elements()};
  if (problem.collective == Collective::server_push && rank >= problem.workers()) range = problem.partition.range(rank);
  return {values.begin() + range.begin, values.begin() + range.end};
}

template <class Check>
void for_all_reductions(Communicator& communicator, Index elements, Check const& check) {
  for (Collective const collective : collectives) {
    if (!adds_up(collective)) continue;
    for (Problem const& problem : test::problems(communicator, collective, elements)) {
      for (Algorithm const algorithm : algorithms_of(collective)) {
        if (!refusal(problem, algorithm).empty()) continue;
        INFO(to_string(collective) << ' ' << to_string(algorithm));
        check(problem, algorithm);
      }
    }
  }
}

} // namespace

TEST_CASE("every run gives the same bits, whatever is delayed", "[mpi][execution]") {
  Communicator communicator = test::world();
  test::Workspace workspace(communicator);
  auto const run = [&](auto const&... how) { return sum_fractions(workspace, how...); };
  std::set<std::string> labels;
  for_all_reductions(communicator, 737, [&](Problem const& problem, Algorithm algorithm) {
    Rank const rank = communicator.rank();
    std::vector<float> const first = defined_part(problem, rank, run(problem, algorithm));
    CHECK(same_bits(defined_part(problem, rank, run(problem, algorithm)), first));
    CHECK(same_bits(defined_part(problem, rank, run(problem, algorithm, false)), first));
    RandomDelays const delays(static_cast<unsigned>(7 * rank + 1));
    for (int i = 0; i < 3; ++i) CHECK(same_bits(defined_part(problem, rank, run(problem, algorithm)), first));
    labels.insert(delays.labels().begin(), delays.labels().end());
  });
  CHECK(labels.contains("trainstone::comm::start"));
  if (communicator.size() == 1) return;
  for (char const* const point : {"send", "receive", "wait"})
    CHECK(labels.contains(std::string("trainstone::comm::") + point));
  CHECK(labels.contains("trainstone::comm::barrier") == communicator.reaches_neighbours());
}

TEST_CASE("all ranks end an all-reduce with the same bits", "[mpi][execution]") {
  Communicator communicator = test::world();
  test::Workspace workspace(communicator);
  auto const run = [&](auto const&... how) { return sum_fractions(workspace, how...); };
  for (Problem const& problem : test::problems(communicator, Collective::all_reduce, 737)) {
    for (Algorithm const algorithm : algorithms_of(Collective::all_reduce)) {
      if (!refusal(problem, algorithm).empty()) continue;
      INFO(to_string(algorithm));
      std::vector<float> const mine = run(problem, algorithm);
      std::uint64_t hash = 0;
      for (float const value : mine) hash = hash * 31 + std::bit_cast<std::uint32_t>(value);
      for (std::uint64_t const other : all_gather_values(communicator, hash)) CHECK(other == hash);
    }
  }
}

TEST_CASE("many collectives in flight end right, waited for in another order on every rank", "[mpi][execution]") {
  Communicator communicator = test::world();
  Problem const problem = test::problems(communicator, Collective::all_reduce, 1009)[0];
  ManyCollectives many(communicator, problem);
  for (int repeat = 0; repeat < 3; ++repeat) check_in_any_order(many, problem, communicator.rank());
}

TEST_CASE("a progress thread is refused where only the main thread may call MPI", "[mpi][execution]") {
  CHECK_THROWS_WITH(ExecutionQueue(Progress::by_thread), ContainsSubstring("a progress thread needs level"));
}

TEST_CASE("a collective makes progress by polling alone", "[mpi][execution]") {
  Communicator communicator = test::world();
  Problem const problem = test::problems(communicator, Collective::all_reduce, 1009)[0];
  ManyCollectives many(communicator, problem);
  for (Execution& execution : many.executions) {
    execution.start();
    while (!execution.progress()) std::this_thread::yield();
    CHECK_FALSE(execution.in_flight());
  }
  check_results(many, problem, communicator.rank());
}

TEST_CASE("buffers outside of the shared segment are refused where a schedule needs them there", "[mpi][execution]") {
  test::skip_on_devices("the host looks into what its ranks share");
  Communicator communicator = Communicator::world();
  if (communicator.size() == 1) return; // nothing to share
  Problem const problem = test::problems(communicator, Collective::all_reduce, 12)[0];
  std::vector<float> data(12);
  Schedule const schedule = make_schedule(problem, Algorithm::shared, communicator.rank());
  ExecutionSpace const exec;
  MemoryLedger ledger;
  SharedSegment segment(communicator, ledger, MemoryCategory::buffers, "test", 64);
  auto const run_with = [&](SharedSegment* where) {
    Execution(exec, communicator, schedule, Operation::sum, Vector<float>(data.data(), data.size()), Vector<float>(),
              {.segment = where})
        .run();
  };
  CHECK_THROWS_WITH(run_with(nullptr), ContainsSubstring("needs buffers in the node's shared memory"));
  CHECK_THROWS_WITH(run_with(&segment), ContainsSubstring("outside of the node's shared memory"));
}

TEST_CASE("data in pieces ends with the bits of data in one, and what lies between them stays", "[mpi][execution]") {
  Communicator world = test::world();
  test::Workspace workspace(world);
  constexpr float untouched = -77;
  Index const elements = 1009;
  Pieces pieces; // out of order, with gaps, neighbours that touch, and a border inside of blocks
  for (Range const& piece : {Range{1500, 1501}, Range{3, 500}, Range{500, 510}, Range{900, 1401}}) pieces.append(piece);
  REQUIRE(pieces.elements() == elements);
  auto const place = [&](Index i) { return static_cast<std::size_t>(pieces.place(i)); };
  for_all_reductions(world, elements, [&](Problem const& problem, Algorithm algorithm) {
    INFO(to_string(problem.collective) << ' ' << to_string(algorithm));
    std::vector<float> values = fractions(world.rank(), elements);
    std::vector<float> memory(static_cast<std::size_t>(pieces.extent()) + 7, untouched);
    for (Index i = 0; i < elements; ++i) memory[place(i)] = values[static_cast<std::size_t>(i)];
    comm_counters() = {};
    memory =
        workspace.run_on<float>(memory, problem, algorithm, Operation::sum, {.longest_message = 400, .pieces = pieces});
    Schedule const schedule = make_schedule(problem, algorithm, world.rank());
    CHECK(comm_counters().total(Purpose::training) == predict_traffic(schedule, world.topology(), sizeof(float), 400));
    for (Index i = 0; i < elements; ++i) values[static_cast<std::size_t>(i)] = memory[place(i)];
    CHECK(same_bits(defined_part(problem, world.rank(), values),
                    defined_part(problem, world.rank(), sum_fractions(workspace, problem, algorithm))));
    CHECK(std::ranges::count(memory, untouched) == std::ssize(memory) - elements);
  });
  auto const run_outside = [&] {
    Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(8, world.size()));
    workspace.run_on<float>(std::vector<float>(2000), problem, Algorithm::ring, Operation::sum, {.pieces = pieces});
  };
  CHECK_THROWS_AS(run_outside(), Error);
}
