// What goes wrong in shared memory and in collectives other than all-reduce is found by its name, and the message says
// where.

#include "comm/algorithms/registry.hpp"
#include "comm/simulation/simulator.hpp"
#include "support/schedules.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using test::data;
using test::schedules_of;
using test::scratch;

namespace {

void check_found(Problem const& problem, std::vector<Schedule> const& schedules, Defect defect, Rank rank,
                 std::string const& words) {
  auto const found = find_defect(problem, schedules);
  REQUIRE(found);
  INFO(found->message);
  CHECK(to_string(found->defect) == to_string(defect));
  CHECK(found->rank == rank);
  CHECK_THAT(found->message, ContainsSubstring(words));
}

void check_proved(Problem const& problem, std::vector<Schedule> const& schedules) {
  auto const found = find_defect(problem, schedules);
  CHECK((found ? found->message : "") == "");
}

/// Three neighbours add up one element each, in the memory of all; barriers are rounds 0 and 2.
Problem const three_neighbours{.collective = Collective::all_reduce,
                               .partition = Partition::even(3, 3),
                               .topology = Topology::one_node(3),
                               .shared_memory = true};

std::vector<std::vector<Round>> sums_in_shared_memory() {
  std::vector<std::vector<Round>> rounds;
  for (Rank rank = 0; rank < 3; ++rank) {
    Slice const element = data(rank, rank + 1, every_neighbour);
    rounds.push_back({{Move::node_barrier()}, {Move::combine(element, element)}, {Move::node_barrier()}});
  }
  return rounds;
}

Problem on_one_node(Collective collective, Index elements, Rank ranks) {
  return Problem::on_one_node(collective, Partition::even(elements, ranks));
}

} // namespace

TEST_CASE("sums in shared memory between two barriers are right", "[comm][simulator][defects]") {
  check_proved(three_neighbours, schedules_of(three_neighbours, sums_in_shared_memory()));
}

TEST_CASE("a missing node barrier is found: what is touched may still change", "[comm][simulator][defects]") {
  auto rounds = sums_in_shared_memory();
  SECTION("the first, on all ranks") {
    for (auto& of_rank : rounds) of_rank.erase(of_rank.begin());
    check_found(three_neighbours, schedules_of(three_neighbours, rounds), Defect::read_while_written, 0,
                "before the first node barrier");
  }
  SECTION("the last, on all ranks") {
    for (auto& of_rank : rounds) of_rank.pop_back();
    check_found(three_neighbours, schedules_of(three_neighbours, rounds), Defect::read_while_written, 0,
                "after the last node barrier");
  }
  SECTION("the last, on one rank") {
    rounds[1].pop_back();
    check_found(three_neighbours, schedules_of(three_neighbours, rounds), Defect::read_while_written, 1,
                "after the last node barrier");
  }
}

TEST_CASE("a node barrier to which a neighbour does not come waits for ever", "[comm][simulator][defects]") {
  auto rounds = sums_in_shared_memory();
  for (Rank const rank : {0, 2}) rounds[static_cast<std::size_t>(rank)].push_back({Move::node_barrier()});
  check_found(three_neighbours, schedules_of(three_neighbours, rounds), Defect::waits_for_ever, 0,
              "rank 0, round 3: node barrier; rank 2, round 3: node barrier");
}

TEST_CASE("neighbours that write the same range between two barriers are found", "[comm][simulator][defects]") {
  auto rounds = sums_in_shared_memory();
  Slice const element = data(0, 1, every_neighbour);
  rounds[2][1].push_back(Move::combine(element, element));
  check_found(three_neighbours, schedules_of(three_neighbours, rounds), Defect::read_while_written, 2,
              "rank 0, round 1: combine of data [0, 1) of all neighbours");
}

TEST_CASE("a neighbour that reads what another one writes between two barriers is found",
          "[comm][simulator][defects]") {
  auto rounds = sums_in_shared_memory();
  Move const copy = Move::copy(data(1, 2, 0), scratch(0, 1));
  SECTION("in the round of the writing") { rounds[2][1].push_back(copy); }
  SECTION("in a later one") { rounds[2].insert(rounds[2].begin() + 2, Round{copy}); }
  check_found(three_neighbours, schedules_of(three_neighbours, rounds, 1), Defect::read_while_written, 2,
              "both touch data [1, 2) of rank 0");
}

TEST_CASE("a rank's own messages and local moves race with its neighbours, too", "[comm][simulator][defects]") {
  Problem problem = three_neighbours;
  problem.collective = Collective::broadcast;
  std::vector<Round> const waits{{Move::node_barrier()}, {Move::node_barrier()}};
  auto rounds = std::vector{waits, waits, waits};
  rounds[1].insert(rounds[1].begin() + 1, Round{Move::copy(data(0, 3, 0), data(0, 3))});
  SECTION("a message sends what another rank copies: both read, but nobody tells rank 2 yet") {
    rounds[0].insert(rounds[0].begin() + 1, Round{Move::send(2, data(0, 3))});
    rounds[2].insert(rounds[2].begin() + 1, Round{Move::receive(0, data(0, 3))});
    check_proved(problem, schedules_of(problem, rounds));
  }
  SECTION("a message arrives where another rank writes") {
    rounds[0].insert(rounds[0].begin() + 1, Round{Move::send(2, data(0, 3))});
    rounds[2].insert(rounds[2].begin() + 1, Round{Move::receive(0, data(0, 3))});
    rounds[1][1].push_back(Move::copy(data(0, 1), data(0, 1, 2)));
    check_found(problem, schedules_of(problem, rounds), Defect::read_while_written, 2, "of rank 2");
  }
  SECTION("the owner adds where another rank reads") {
    rounds[0].insert(rounds[0].begin() + 1, Round{Move::reduce(data(0, 1), data(1, 2))});
    check_found(problem, schedules_of(problem, rounds), Defect::read_while_written, 0,
                "reduce of data [0, 1) into data [1, 2)");
  }
}

TEST_CASE("a barrier between writing and reading makes them right", "[comm][simulator][defects]") {
  Problem problem = three_neighbours;
  problem.collective = Collective::reduce_scatter;
  std::vector<std::vector<Round>> rounds;
  for (Rank rank = 0; rank < 3; ++rank) {
    Slice const element = data(rank, rank + 1, 1); // in rank 1's memory; from there everybody fetches
    rounds.push_back({{Move::node_barrier()},
                      {Move::combine(data(rank, rank + 1, every_neighbour), element)},
                      {Move::node_barrier()},
                      {Move::copy(element, scratch(0, 1)), Move::copy(scratch(0, 1), data(rank, rank + 1))},
                      {Move::node_barrier()}});
  }
  check_proved(problem, schedules_of(problem, rounds, 1));
  for (auto& of_rank : rounds) of_rank.erase(of_rank.begin() + 2);
  // rank 1's copy into its own element reads and writes what is its own alone: only the others' memory is left
  check_proved(problem, schedules_of(problem, rounds, 1));
  std::swap(rounds[0][2][0].from.range, rounds[2][2][0].from.range); // each fetches what the other one wrote
  check_found(problem, schedules_of(problem, rounds, 1), Defect::read_while_written, 2,
              "no node barrier between itself and rank 0, round 1");
}

TEST_CASE("what goes wrong with mailboxes is found", "[comm][simulator][defects]") {
  auto const mailbox = [](Index begin, Index end, Rank owner = own_memory) {
    return Slice{BufferId::mailbox, {begin, end}, owner};
  };
  std::vector<std::vector<Round>> rounds(3, {{Move::copy(data(0, 3), mailbox(0, 3))},
                                             {Move::node_barrier()},
                                             {Move::combine(mailbox(0, 3, every_neighbour), data(0, 3))}});
  auto const check = [&](Defect defect, Rank rank, std::string const& words) {
    check_found(three_neighbours, schedules_of(three_neighbours, rounds), defect, rank, words);
  };
  check_proved(three_neighbours, schedules_of(three_neighbours, rounds));
  SECTION("reading before the barrier") {
    for (auto& of_rank : rounds) of_rank.erase(of_rank.begin() + 1);
    for (auto& of_rank : rounds) of_rank.push_back({Move::node_barrier()});
    check(Defect::read_while_written, 0, "before the first node barrier");
  }
  SECTION("another letter while neighbours may still read the first one") {
    rounds[1].push_back({Move::copy(data(0, 1), mailbox(1, 2))});
    check(Defect::read_while_written, 1, "both touch mailbox [1, 2) of rank 1");
  }
  SECTION("writing into a neighbour's") {
    rounds[2].insert(rounds[2].begin() + 2, {{Move::copy(data(0, 1), mailbox(0, 1, 1))}, {Move::node_barrier()}});
    check(Defect::malformed, 2, "a mailbox is written by its owner alone");
  }
  SECTION("sending from it") {
    rounds[0].push_back({Move::send(1, mailbox(0, 1))});
    rounds[1].push_back({Move::receive(0, data(0, 1))});
    check(Defect::malformed, 0, "messages start and end in data or scratch");
  }
  SECTION("more than it holds") {
    rounds[0][0] = {Move::copy(data(0, 3), mailbox(mailbox_elements - 2, mailbox_elements + 1))};
    check(Defect::malformed, 0, "outside its buffer");
  }
  SECTION("nothing in it") {
    rounds[2].erase(rounds[2].begin());
    check(Defect::undefined_read, 2, "element 0 of rank 2's mailbox, which nothing has written");
  }
}

TEST_CASE("shared memory that is not there is found", "[comm][simulator][defects]") {
  SECTION("the problem has none") {
    Problem problem = three_neighbours;
    auto const schedules = schedules_of(problem, sums_in_shared_memory());
    problem.shared_memory = false;
    check_found(problem, schedules, Defect::malformed, 0, "it needs shared memory");
  }
  SECTION("the ranks are on two nodes") {
    Problem problem = three_neighbours;
    auto const schedules = schedules_of(problem, sums_in_shared_memory());
    problem.topology = Topology::block(3, 2);
    check_found(problem, schedules, Defect::malformed, 0, "its neighbours are 0, 1, 2, they should be 0, 1");
  }
  SECTION("a move names a rank of another node") {
    Problem problem = three_neighbours;
    problem.topology = Topology::block(3, 2);
    auto rounds = std::vector<std::vector<Round>>(3);
    rounds[0] = {{Move::copy(data(0, 1, 2), data(0, 1))}};
    check_found(problem, schedules_of(problem, rounds), Defect::malformed, 0, "no neighbour");
  }
  SECTION("a barrier shares its round") {
    auto rounds = sums_in_shared_memory();
    rounds[2][0].push_back(Move::copy(data(0, 1), data(1, 2)));
    check_found(three_neighbours, schedules_of(three_neighbours, rounds), Defect::malformed, 2, "alone in its round");
  }
}

TEST_CASE("a barrier that lets a rank go before all have come is found", "[comm][simulator][defects]") {
  Problem const problem = on_one_node(Collective::barrier, 0, 5);
  auto schedules = make_schedules(problem, Algorithm::dissemination);
  check_proved(problem, schedules);
  for (Schedule& schedule : schedules) schedule.rounds.pop_back();
  check_found(problem, schedules, Defect::unheard_rank, 0, "rank 0 leaves the barrier without having heard of rank 1");
}

TEST_CASE("what a rank hears in a round it can tell in the next one only", "[comm][simulator][defects]") {
  Problem const problem = on_one_node(Collective::barrier, 0, 3);
  Slice const nothing;
  // all signals in one round: rank 2 hears of 1, and of 0 only if 1 had waited for 0
  std::vector<std::vector<Round>> rounds{
      {{Move::send(1, nothing), Move::receive(1, nothing)}, {Move::receive(1, nothing)}},
      {{Move::receive(0, nothing), Move::send(0, nothing), Move::send(2, nothing), Move::receive(2, nothing)},
       {Move::send(0, nothing)}},
      {{Move::receive(1, nothing), Move::send(1, nothing)}}};
  check_found(problem, schedules_of(problem, rounds), Defect::unheard_rank, 2, "heard of rank 0");
  rounds[1][1].push_back(Move::send(2, nothing));
  rounds[2].push_back({Move::receive(1, nothing)});
  check_proved(problem, schedules_of(problem, rounds));
}

TEST_CASE("a node barrier tells all neighbours of each other", "[comm][simulator][defects]") {
  Problem problem = on_one_node(Collective::barrier, 0, 3);
  problem.shared_memory = true;
  std::vector<Round> const come{{Move::node_barrier()}};
  check_proved(problem, schedules_of(problem, {come, come, come}));
}

TEST_CASE("a block that never arrives is a missing contribution", "[comm][simulator][defects]") {
  Problem const problem = on_one_node(Collective::gather, 6, 3);
  auto schedules = make_schedules(problem, Algorithm::linear);
  std::erase_if(schedules[0].rounds[0], [](Move const& move) { return move.peer == 2; });
  schedules[2].rounds.clear();
  check_found(problem, schedules, Defect::missing_contribution, 0, "element 4 undefined");
}

TEST_CASE("somebody else's block is a wrong element", "[comm][simulator][defects]") {
  Problem const problem = on_one_node(Collective::all_to_all, 4, 2);
  std::vector<std::vector<Round>> rounds;
  for (Rank const peer : {1, 0}) {
    Slice const message = data(2 * peer, 2 * peer + 2); // rank 0's for rank 1 is its second half
    rounds.push_back(
        {{Move::copy(message, scratch(0, 2))}, {Move::send(peer, scratch(0, 2)), Move::receive(peer, message)}});
  }
  std::swap(rounds[0][0][0].from, rounds[1][0][0].from); // both send what they should keep
  check_found(problem, schedules_of(problem, rounds, 2), Defect::wrong_element, 0,
              "ends with element 2 being element 2, it should be 0");
}

TEST_CASE("the right element of the wrong rank is a foreign contribution", "[comm][simulator][defects]") {
  Problem const problem = on_one_node(Collective::all_to_all, 4, 2);
  // rank 0's place for rank 1's message gets the same elements of rank 0's own data
  std::vector<std::vector<Round>> const rounds{{{Move::copy(data(0, 2), data(2, 4))}}, {}};
  check_found(problem, schedules_of(problem, rounds), Defect::foreign_contribution, 0,
              "element 2 holding rank 0 1 times, it should be 0");
}

TEST_CASE("what no rank holds cannot be sent", "[comm][simulator][defects]") {
  Problem problem = on_one_node(Collective::scatter, 2, 2);
  auto const schedules = make_schedules(problem, Algorithm::linear);
  check_proved(problem, schedules);
  problem.root = 1; // these schedules send rank 0's data
  check_found(problem, schedules, Defect::undefined_read, 0,
              "send of data [1, 2) to rank 1 reads element 1 of rank 0's data, which nothing has written");
}

TEST_CASE("a sum over too many or too few ranks is found", "[comm][simulator][defects]") {
  Problem problem{.collective = Collective::server_push,
                  .partition = server_partition(2, 3, 1),
                  .topology = Topology::one_node(4),
                  .servers = 1};
  auto schedules = make_schedules(problem, Algorithm::direct);
  check_proved(problem, schedules);
  problem.collective = Collective::reduce; // to the server, which has not added anything of its own
  problem.servers = 0;
  problem.root = 3;
  for (Schedule& schedule : schedules) schedule.collective = Collective::reduce;
  check_found(problem, schedules, Defect::missing_contribution, 3, "holding rank 3 0 times, it should be 1");
}
