#include "comm/algorithms/registry.hpp"
#include "comm/execution/communicator.hpp"
#include "comm/execution/control.hpp"
#include "comm/execution/mpi.hpp"
#include "comm/schedule/counters.hpp"
#include "core/error.hpp"
#include "support/traffic.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <functional>
#include <string>
#include <utility>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("the ranks of one machine are one node", "[mpi][communicator]") {
  Communicator const world = Communicator::world();
  CHECK(world.nodes().count == 1);
  CHECK(world.nodes().host_names.size() == 1);
  CHECK(world.node_size() == world.size());
  CHECK(world.nodes().node_of_rank == std::vector<int>(static_cast<std::size_t>(world.size()), 0));
}

TEST_CASE("ranks can be taken to sit on several nodes, in blocks, also in a split", "[mpi][communicator]") {
  int const ranks = Communicator::world().size();
  for (int nodes = 1; nodes <= ranks; ++nodes) {
    Communicator const world = Communicator::world(nodes);
    CHECK(world.topology() == Topology::block(ranks, nodes));
    CHECK(world.nodes().count == nodes);
    Communicator const group = world.split(world.rank() % 2);
    for (Rank rank = 0; rank < group.size(); ++rank) {
      bool const together = group.topology().link(rank, group.rank()) == Link::intra;
      CHECK(together == (world.topology().link(2 * rank + world.rank() % 2, world.rank()) == Link::intra));
    }
  }
  CHECK_THROWS_AS(Communicator::world(ranks + 1), InputError);
  CHECK_THROWS_AS(Communicator::world(-1), InputError);
}

TEST_CASE("a split keeps the order of ranks and its groups reduce for themselves", "[mpi][communicator]") {
  ExecutionSpace const exec;
  Communicator const world = Communicator::world();
  int const colour = world.rank() % 2;
  Communicator group = world.split(colour);
  CHECK(group.rank() == world.rank() / 2);
  CHECK(group.size() == (world.size() + 1 - colour) / 2);
  std::int64_t sum = 0;
  for (Rank rank = colour; rank < world.size(); rank += 2) sum += 100 + rank;
  CHECK(control_all_reduce(exec, group, Operation::sum, std::int64_t{100} + world.rank()) == sum);
}

TEST_CASE("the first n ranks form a communicator and the others get none", "[mpi][communicator]") {
  ExecutionSpace const exec;
  Communicator const world = Communicator::world();
  for (Rank ranks = 1; ranks <= world.size(); ++ranks) {
    auto first = world.first(ranks);
    CHECK(first.has_value() == (world.rank() < ranks));
    if (!first) continue;
    CHECK(first->rank() == world.rank());
    CHECK(first->size() == ranks);
    CHECK(control_all_reduce(exec, *first, Operation::sum, 1.0) == ranks);
  }
  CHECK_THROWS_AS(world.first(world.size() + 1), Error);
  CHECK_THROWS_AS(world.first(0), Error);
}

TEST_CASE("a moved communicator goes on working", "[mpi][communicator]") {
  ExecutionSpace const exec;
  Communicator first = Communicator::world();
  Communicator second = std::move(first);
  Communicator third = Communicator::world();
  third = std::move(second);
  CHECK(control_all_reduce(exec, third, Operation::sum, 1.0) == third.size());
}

TEST_CASE("a communicator that checks its order may be replaced by a smaller one", "[mpi][communicator]") {
  ExecutionSpace const exec;
  Communicator world = Communicator::world();
  world.check_order(OrderCheck::yes);
  world = world.split(world.rank());
  CHECK(world.size() == 1);
  CHECK(control_all_reduce(exec, world, Operation::sum, 2.0) == 2.0);
}

TEST_CASE("an MPI error is thrown with the call and MPI's words", "[mpi][communicator]") {
  Communicator const world = Communicator::world();
  int const nobody = world.size();
  CHECK_THROWS_MATCHES(TRAINSTONE_MPI_CHECK(MPI_Send(nullptr, 0, MPI_BYTE, nobody, 0, world.handle().comm)), Error,
                       MessageMatches(ContainsSubstring("MPI_Send(") && ContainsSubstring("rank")));
}

TEST_CASE("a gather whose sizes do not fit is refused before MPI sees it", "[mpi][communicator]") {
  Communicator const world = Communicator::world();
  std::array<std::byte, 1> const mine{};
  std::vector<std::byte> all(static_cast<std::size_t>(world.size()) + 1);
  CHECK_THROWS_AS(Impl::all_gather_bytes(world, mine, all), Error);
}

TEST_CASE("control all-reduces agree on sums, maxima and minima", "[mpi][control]") {
  ExecutionSpace const exec;
  Communicator world = Communicator::world();
  Rank const n = world.size();
  std::array<double, 3> values{1.5 * world.rank(), -1.0 * world.rank(), 1};
  control_all_reduce(exec, world, Operation::sum, values);
  CHECK(values == std::array<double, 3>{1.5 * n * (n - 1) / 2, -1.0 * n * (n - 1) / 2, static_cast<double>(n)});
  CHECK(control_all_reduce(exec, world, Operation::max, std::int64_t{world.rank()}) == n - 1);
  CHECK(control_all_reduce(exec, world, Operation::min, -2.5 * world.rank()) == -2.5 * (n - 1));
}

TEST_CASE("control traffic is counted by itself and as predicted", "[mpi][control]") {
  ExecutionSpace const exec;
  Communicator world = Communicator::world();
  comm_counters() = {};
  std::array<double, 3> values{};
  control_all_reduce(exec, world, Operation::sum, values);
  Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(3, world.size()));
  Schedule const schedule = make_schedule(problem, Algorithm::ring, world.rank());
  CHECK(comm_counters().total(Purpose::control) == predict_traffic(schedule, problem.topology, sizeof(double)));
  CHECK(comm_counters().total(Purpose::training) == Traffic{});
}

namespace {

/// The pieces "r.0", "r.1", ... of a rank, r of them; then nothing.
std::function<std::string()> pieces_of(Rank rank) {
  return [rank, number = 0]() mutable { return number < rank ? fmt::format("{}.{}", rank, number++) : std::string(); };
}

} // namespace

TEST_CASE("texts come to the first rank one after the other, in pieces", "[mpi][control]") {
  Communicator world = Communicator::world();
  for (int time = 0; time < 2; ++time) {
    std::string expected, taken;
    for (Rank rank = 1; rank < world.size() + 1; ++rank)
      for (Rank i = 0; i < rank; ++i) expected += fmt::format("{}.{} ", rank, i);
    stream_to_first(world, pieces_of(world.rank() + 1), [&](std::string const& piece) { taken += piece + " "; });
    CHECK(taken == (world.rank() == 0 ? expected : ""));
  }
}

TEST_CASE("texts of many pieces come whole", "[mpi][control]") {
  Communicator world = Communicator::world();
  constexpr std::size_t pieces = 64, length = std::size_t{1} << 18;
  std::size_t bytes = 0;
  stream_to_first(
      world, [number = std::size_t{0}]() mutable { return std::string(number++ < pieces ? length : 0, 'x'); },
      [&](std::string const& piece) { bytes += piece.size(); });
  CHECK(bytes == (world.rank() == 0 ? static_cast<std::size_t>(world.size()) * pieces * length : 0));
}

TEST_CASE("an error of the first rank or of another ends a stream on all ranks, and is thrown where it was",
          "[mpi][control]") {
  Communicator world = Communicator::world();
  Rank const last = world.size() - 1;
  auto const fails_on = [&](bool in_next, bool in_take) {
    std::string seen;
    try {
      stream_to_first(
          world,
          [&, own = pieces_of(3)] {
            if (in_next && world.rank() == last) throw Error("next");
            return own();
          },
          [&](std::string const&) {
            if (in_take) throw Error("take");
          });
    } catch (Error const& error) {
      seen = error.what();
    }
    return seen;
  };
  CHECK(fails_on(true, false) == (world.rank() == last ? "next" : ""));
  CHECK(fails_on(false, true) == (world.rank() == 0 ? "take" : ""));
  CHECK(all_gather_values(world, world.rank()).size() == static_cast<std::size_t>(world.size())); // no message is left
}

TEST_CASE("reports gather values and texts by rank", "[mpi][control]") {
  Communicator const world = Communicator::world();
  barrier(world);
  auto const squares = all_gather_values(world, world.rank() * world.rank());
  auto const texts = all_gather_texts(world, std::string(static_cast<std::size_t>(world.rank()), 'x'));
  REQUIRE(squares.size() == static_cast<std::size_t>(world.size()));
  REQUIRE(texts.size() == static_cast<std::size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) {
    CHECK(squares[static_cast<std::size_t>(rank)] == rank * rank);
    CHECK(texts[static_cast<std::size_t>(rank)] == std::string(static_cast<std::size_t>(rank), 'x'));
  }
}
