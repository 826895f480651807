// Prices: the rules of the modelled machine by schedules written by hand, then the closed forms of whole algorithms.

#include "comm/algorithms/registry.hpp"
#include "comm/simulation/simulator.hpp"
#include "core/error.hpp"
#include "support/schedules.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace trainstone;
using test::data;
using test::schedules_of;
using test::scratch;

namespace {

constexpr std::size_t bytes_of_float = 4;
constexpr AlphaBetaGamma constants{.alpha = 2e-6, .beta = 1e-10, .gamma = 3e-11};

/// Seconds that are easy to tell apart; one element is one byte here.
MachineModel simple_machine() {
  MachineModel machine = uniform_machine({.alpha = 10, .beta = 1, .gamma = 100});
  machine.set_messages(Link::inter, PiecewiseLinear(1000, 1));
  machine.copy = PiecewiseLinear(0, 3);
  machine.combine_to_own = PiecewiseLinear(0, 20);
  machine.combine_to_all = PiecewiseLinear(0, 30);
  machine.fetch = PiecewiseLinear(0, 5);
  machine.push = PiecewiseLinear(0, 4);
  machine.node_barrier = 7;
  return machine;
}

Problem all_reduce(Index elements, Rank ranks) {
  return Problem::on_one_node(Collective::all_reduce, Partition::even(elements, ranks));
}

/// At most a handful of roundings per message of the longest chain, below 1000 messages.
Catch::Approx about(double seconds) { return Catch::Approx(seconds).epsilon(1e-12).margin(0); }

double price_of(Collective collective, Algorithm algorithm, Index elements, Rank ranks) {
  Problem const problem = Problem::on_one_node(collective, Partition::even(elements, ranks));
  return price(problem, make_schedules(problem, algorithm), bytes_of_float, uniform_machine(constants));
}

int ceil_lg(Rank ranks) {
  int bits = 0;
  while ((Rank{1} << bits) < ranks) ++bits;
  return bits;
}

} // namespace

TEST_CASE("messages of a rank queue for its ports, which are two-way", "[comm][price]") {
  Problem const problem = all_reduce(2, 4);
  std::vector<std::vector<Round>> rounds{{{}}};
  for (Rank peer = 1; peer < 4; ++peer) {
    rounds[0][0].push_back(Move::send(peer, data(0, 2)));
    rounds.push_back({{Move::receive(0, data(0, 2))}});
  }
  auto const schedules = schedules_of(problem, rounds);
  MachineModel machine = simple_machine();
  CHECK(price(problem, schedules, 1, machine) == 3 * 12);
  machine.ports = 2;
  CHECK(price(problem, schedules, 1, machine) == 2 * 12);
  machine.ports = 3;
  CHECK(price(problem, schedules, 1, machine) == 12);

  auto const exchange = schedules_of(all_reduce(2, 2), {{{Move::send(1, data(0, 1)), Move::receive(1, data(1, 2))}},
                                                        {{Move::send(0, data(0, 1)), Move::receive(0, data(1, 2))}}});
  CHECK(price(all_reduce(2, 2), exchange, 1, simple_machine()) == 11);
}

TEST_CASE("messages between nodes queue for the ports of both nodes, those inside a node do not", "[comm][price]") {
  // 0, 1 and 2 on one node, 3, 4 and 5 on the other one: pairs send across and 1 sends to 0 besides
  Problem problem = all_reduce(1, 6);
  problem.topology = Topology::block(6, 2);
  auto const schedules = schedules_of(problem,
                                      {{{Move::send(3, data(0, 1)), Move::receive(1, scratch(0, 1))}},
                                       {{Move::send(4, data(0, 1)), Move::send(0, data(0, 1))}},
                                       {{Move::send(5, data(0, 1))}},
                                       {{Move::receive(0, data(0, 1))}},
                                       {{Move::receive(1, data(0, 1))}},
                                       {{Move::receive(2, data(0, 1))}}},
                                      1);
  MachineModel machine = simple_machine();
  CHECK(price(problem, schedules, 1, machine) == 1001 + 11); // rank 1 sends twice
  machine.node_ports = 3;
  CHECK(price(problem, schedules, 1, machine) == 1001 + 11);
  machine.node_ports = 2;
  CHECK(price(problem, schedules, 1, machine) == 2 * 1001);
  machine.node_ports = 1;
  CHECK(price(problem, schedules, 1, machine) == 3 * 1001);
}

TEST_CASE("no node stands for all if nodes have ports", "[comm][price]") {
  MachineModel machine = simple_machine();
  machine.node_ports = 1;
  Problem problem = all_reduce(6, 6);
  problem.topology = Topology::block(6, 3);
  for (Algorithm const algorithm : {Algorithm::naive, Algorithm::ring, Algorithm::hierarchical})
    CHECK(price(problem, algorithm, 1, machine) == price(problem, make_schedules(problem, algorithm), 1, machine));
}

TEST_CASE("free ports take the message that is listed first, not the one of the lowest rank", "[comm][price]") {
  // 0 and 1 both send to 2 and to 3, in orders that do not collide; played by ascending ranks they would
  Problem const problem = all_reduce(1, 4);
  auto const schedules = schedules_of(problem,
                                      {{{Move::send(3, data(0, 1)), Move::send(2, data(0, 1))}},
                                       {{Move::send(2, data(0, 1)), Move::send(3, data(0, 1))}},
                                       {{Move::receive(0, scratch(0, 1)), Move::receive(1, scratch(1, 2))}},
                                       {{Move::receive(0, scratch(0, 1)), Move::receive(1, scratch(1, 2))}}},
                                      2);
  CHECK(price(problem, schedules, 1, simple_machine()) == 2 * 11);
}

TEST_CASE("a message starts when both ends have posted it, and takes its link's time", "[comm][price]") {
  Problem problem = all_reduce(2, 3);
  problem.topology = Topology::block(3, 2); // 0 and 1, 2
  auto const schedules = schedules_of(problem,
                                      {{{Move::copy(data(0, 2), scratch(0, 2))}, {Move::send(1, data(0, 2))}},
                                       {{Move::receive(0, data(0, 2))}, {Move::send(2, data(0, 1))}},
                                       {{Move::receive(1, data(0, 1))}}},
                                      2);
  CHECK(price(problem, schedules, 1, simple_machine()) == 2 * 3 + (10 + 2) + (1000 + 1));
}

TEST_CASE("local moves before the messages of a round run while these are under way", "[comm][price]") {
  Problem const problem = all_reduce(8, 2);
  std::vector<Round> const other{{Move::receive(0, data(0, 4))}};
  auto const priced = [&](Round const& round) {
    return price(problem, schedules_of(problem, {{round}, other}, 8), 1, simple_machine());
  };
  Move const send = Move::send(1, data(0, 4)); // 14 seconds
  Move const short_copy = Move::copy(data(4, 6), scratch(0, 2));
  Move const long_copy = Move::copy(data(0, 8), scratch(0, 8));
  CHECK(priced({send, short_copy}) == 14 + 6);
  CHECK(priced({short_copy, send}) == 14);
  CHECK(priced({long_copy, send}) == 24);
  CHECK(priced({long_copy, send, short_copy}) == 24 + 6);
}

TEST_CASE("every kind of local move takes its own time", "[comm][price]") {
  Problem problem = all_reduce(6, 2);
  problem.shared_memory = true;
  auto const priced = [&](Move const& move) {
    return price(problem, schedules_of(problem, {{{move}}, {}}, 6), 1, simple_machine());
  };
  CHECK(priced(Move::copy(data(0, 2), scratch(0, 2))) == 2 * 3);
  CHECK(priced(Move::reduce(scratch(0, 2), data(0, 2))) == 2 * 100);
  CHECK(priced(Move::combine(scratch(0, 6), data(0, 2))) == 2 * 2 * 100); // two additions
  CHECK(priced(Move::copy(data(0, 2, 1), data(0, 2))) == 4 * 5);          // read and written
  CHECK(priced(Move::push(data(0, 2), data(0, 2, 1))) == 4 * 4);
  CHECK(priced(Move::combine(data(0, 2, every_neighbour), data(0, 2))) == 6 * 20); // two read, one written
  CHECK(priced(Move::combine(data(0, 2, every_neighbour), data(0, 2, every_neighbour))) == 8 * 30);
  CHECK(priced(Move::reduce(data(0, 2, 1), data(0, 2))) == 6 * 20);
}

TEST_CASE("pushes into many memories touch as much as fetches from them", "[comm][price]") {
  MachineModel machine = simple_machine();
  machine.fetch = machine.push = PiecewiseLinear({{0, 0, 1}, {100, -400, 5}}); // large ones take longer per byte
  for (Rank const ranks : {2, 3, 8}) {
    Problem problem = Problem::on_one_node(Collective::all_gather, Partition::even(40 * ranks, ranks));
    problem.shared_memory = true;
    auto const priced = [&](Algorithm algorithm) {
      return price(problem, make_schedules(problem, algorithm), 1, machine);
    };
    CHECK(priced(Algorithm::shared_push) == priced(Algorithm::shared));
  }
}

TEST_CASE("small moves through a large buffer take the time per byte that large ones take", "[comm][price]") {
  MachineModel machine = simple_machine();
  machine.copy = PiecewiseLinear({{0, 2, 1}, {100, 0, 5}});
  auto const priced = [&](Index pieces) {
    std::vector<Round> rounds;
    for (Index i = 0; i < pieces; ++i) rounds.push_back({Move::copy(data(40 * i, 40 * (i + 1)), scratch(0, 40))});
    return price(all_reduce(400, 2), schedules_of(all_reduce(400, 2), {rounds, {}}, 40), 1, machine);
  };
  CHECK(priced(1) == 42);           // touches as much as a copy that is measured
  CHECK(priced(2) == 2 * 42);       // 120 bytes: as one of 60, whose start is a smaller part of its time
  CHECK(priced(10) == 10 * 40 * 5); // 440 bytes: as one of 220
}

TEST_CASE("a message between ranks that do nothing else takes its own time", "[comm][price]") {
  MachineModel machine = simple_machine(); // 10 + bytes
  machine.one_way[0] = PiecewiseLinear(4, 1);
  Problem const problem = all_reduce(2, 3);
  Move const send = Move::send(1, data(0, 1));
  Move const receive = Move::receive(0, data(0, 1));
  CHECK(price(problem, schedules_of(problem, {{{send}}, {{receive}}, {}}), 1, machine) == 5);
  // 1 passes on something else meanwhile: whoever is slower
  Move const further = Move::send(2, data(1, 2));
  CHECK(price(problem, schedules_of(problem, {{{send}}, {{receive, further}}, {{Move::receive(1, data(1, 2))}}}), 1,
              machine) == 11);
}

TEST_CASE("a node barrier lets the neighbours go when the last one has come", "[comm][price]") {
  Problem problem = all_reduce(4, 4);
  problem.topology = Topology::block(4, 2);
  problem.shared_memory = true;
  Round const barrier{Move::node_barrier()};
  auto const busy = [](Index elements) { return Round{Move::copy(data(0, elements), scratch(0, elements))}; };
  auto const schedules = schedules_of(problem,
                                      {{busy(1), barrier, busy(1), barrier}, // both nodes have 3 s per element
                                       {busy(4), barrier, barrier},
                                       {barrier, busy(1), barrier},
                                       {barrier, busy(2), barrier}},
                                      4);
  CHECK(price(problem, schedules, 1, simple_machine()) == 4 * 3 + 7 + 3 + 7);
}

TEST_CASE("schedules that wait for ever have no price", "[comm][price]") {
  Problem const problem = all_reduce(1, 2);
  CHECK_THROWS_AS(price(problem, schedules_of(problem, {{{Move::send(1, data(0, 1))}}, {}}), 4, simple_machine()),
                  Error);
  MachineModel machine = simple_machine();
  machine.ports = 0;
  CHECK_THROWS_AS(price(problem, schedules_of(problem, {{}, {}}), 4, machine), Error);
}

// --- closed forms ----------------------------------------------------------------------------------------

TEST_CASE("the price of ring, Rabenseifner, tree and butterfly is the closed form", "[comm][price]") {
  auto const [alpha, beta, gamma] = constants;
  for (Rank ranks = 1; ranks <= 33; ++ranks) {
    INFO(ranks << " ranks");
    double const n = ranks;
    double const lg = ceil_lg(ranks);
    Index const elements = Index{1000} * ranks;
    double const s = static_cast<double>(elements) * bytes_of_float;
    double const share = s * (n - 1) / n;
    auto const priced = [&](Algorithm algorithm) {
      return price_of(Collective::all_reduce, algorithm, elements, ranks);
    };
    CHECK(priced(Algorithm::ring) == about(2 * (n - 1) * alpha + 2 * beta * share + gamma * share));
    CHECK(priced(Algorithm::tree) == about(2 * lg * (alpha + s * beta) + lg * gamma * s));
    CHECK(priced(Algorithm::circulant) == about(2 * lg * alpha + 2 * beta * share + gamma * share)); // copies are free
    if ((ranks & (ranks - 1)) != 0) continue;
    CHECK(priced(Algorithm::rabenseifner) == about(2 * lg * alpha + 2 * beta * share + gamma * share));
    CHECK(priced(Algorithm::butterfly) == about(lg * (alpha + (beta + gamma) * s)));
  }
}

TEST_CASE("butterfly and Rabenseifner change places at n*", "[comm][price]") {
  auto const [alpha, beta, gamma] = constants;
  for (Rank const ranks : {4, 8, 16, 32}) {
    double const n = ranks;
    double const lg = ceil_lg(ranks);
    double const bytes = lg * alpha / ((lg - 2 * (n - 1) / n) * beta + (lg - (n - 1) / n) * gamma);
    Index const elements = static_cast<Index>(bytes / bytes_of_float) / ranks * ranks;
    for (Index const less_or_more : {-ranks, 2 * ranks}) {
      double const butterfly = price_of(Collective::all_reduce, Algorithm::butterfly, elements + less_or_more, ranks);
      double const rabenseifner =
          price_of(Collective::all_reduce, Algorithm::rabenseifner, elements + less_or_more, ranks);
      INFO(ranks << " ranks, n* = " << elements << " elements");
      CHECK((butterfly < rabenseifner) == (less_or_more < 0));
    }
  }
}

TEST_CASE("the price of a synchronous push and pull is 2 N alpha + 2 beta N S/K + gamma (N-1) S/K", "[comm][price]") {
  auto const [alpha, beta, gamma] = constants;
  for (Rank workers = 1; workers <= 17; ++workers) {
    for (Rank servers = 1; servers <= workers; ++servers) {
      Index const elements = Index{500} * servers;
      double sum = 0;
      for (Collective const collective : {Collective::server_push, Collective::server_pull}) {
        Problem problem = Problem::on_one_node(collective, server_partition(elements, workers, servers));
        problem.servers = servers;
        sum += price(problem, make_schedules(problem, Algorithm::direct), bytes_of_float, uniform_machine(constants));
      }
      double const n = workers;
      double const slice = 500.0 * bytes_of_float;
      INFO(workers << " workers, " << servers << " servers");
      CHECK(sum == about(2 * n * alpha + 2 * beta * n * slice + gamma * (n - 1) * slice));
    }
  }
}

TEST_CASE("one-step collectives take N-1 messages on one port, on any number of ranks", "[comm][price]") {
  auto const [alpha, beta, gamma] = constants;
  for (Rank ranks = 2; ranks <= 33; ++ranks) {
    INFO(ranks << " ranks");
    double const steps = ranks - 1;
    double const block = 100.0 * bytes_of_float;
    Index const elements = Index{100} * ranks;
    double const sent = steps * (alpha + beta * block);
    CHECK(price_of(Collective::reduce_scatter, Algorithm::direct, elements, ranks) ==
          about(sent + steps * gamma * block));
    CHECK(price_of(Collective::all_gather, Algorithm::direct, elements, ranks) == about(sent));
    CHECK(price_of(Collective::all_to_all, Algorithm::pairwise, elements, ranks) == about(sent));
    CHECK(price_of(Collective::gather, Algorithm::linear, elements, ranks) == about(sent));
    CHECK(price_of(Collective::scatter, Algorithm::linear, elements, ranks) == about(sent));
  }
}

TEST_CASE("65536 ranks on 8192 nodes are priced by one node", "[comm][price]") {
  auto const [alpha, beta, gamma] = constants;
  Rank const ranks = 65536;
  Problem problem = all_reduce(Index{4} * ranks, ranks);
  problem.topology = Topology::block(ranks, 8192);
  double const s = 16.0 * ranks;
  double const share = s - 16;
  MachineModel const machine = uniform_machine(constants);
  // 131070 additions of three terms each
  CHECK(price(problem, Algorithm::ring, bytes_of_float, machine) ==
        Catch::Approx(2.0 * (ranks - 1) * alpha + 2 * beta * share + gamma * share).epsilon(1e-10).margin(0));
  CHECK(price(problem, Algorithm::rabenseifner, bytes_of_float, machine) ==
        about(2 * 16 * alpha + 2 * beta * share + gamma * share));
  CHECK(price(problem, Algorithm::butterfly, bytes_of_float, machine) == about(16 * (alpha + (beta + gamma) * s)));
  CHECK(price(problem, Algorithm::tree, bytes_of_float, machine) ==
        about(2 * 16 * (alpha + s * beta) + 16 * gamma * s));
}

TEST_CASE("blocks that are empty cost nothing, however many ranks there are to be alike", "[comm][price]") {
  MachineModel machine = uniform_machine(constants);
  machine.of(Link::inter) = PiecewiseLinear(4 * constants.alpha, constants.beta); // few blocks do not queue for it
  Rank const ranks = 96;
  for (RegisteredAlgorithm const& line : registered_algorithms()) {
    if (line.symmetry == PricingSymmetry::none || !has_data(line.collective)) continue;
    for (Index const elements : {1, 5, 95, 97}) {
      Problem const problem = even_problem(line.collective, elements, Topology::block(ranks, 12));
      std::vector<Schedule> const schedules = make_schedules(problem, line.algorithm);
      INFO(to_string(line.collective) << " " << to_string(line.algorithm) << " of " << elements);
      CHECK(price(problem, line.algorithm, bytes_of_float, machine) ==
            about(price(problem, schedules, bytes_of_float, machine)));
    }
  }
}

// --- the machine's curves --------------------------------------------------------------------------------

TEST_CASE("a piecewise line uses the piece that begins at or before the size", "[comm][price]") {
  PiecewiseLinear const curve({{0, 1, 0}, {10, 5, 2}, {100, 7, 1}});
  CHECK(curve(0) == 1);
  CHECK(curve(9.5) == 1);
  CHECK(curve(10) == 25);
  CHECK(curve(99) == 203);
  CHECK(curve(100) == 107);
  CHECK(curve(1000) == 1007);
  CHECK_THROWS_AS(PiecewiseLinear(std::vector<PiecewiseLinear::Piece>{}), Error);
  CHECK_THROWS_AS(PiecewiseLinear({{1, 0, 0}}), Error);
  CHECK_THROWS_AS(PiecewiseLinear({{0, 0, 0}, {5, 0, 0}, {5, 0, 0}}), Error);
  CHECK_THROWS_AS(PiecewiseLinear({{0, 0, 1.0 / 0.0}}), Error);
}
