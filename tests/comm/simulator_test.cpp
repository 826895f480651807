// What the simulator tells of schedules that are right: that they are, in which order they add, what they count.

#include "comm/algorithms/registry.hpp"
#include "comm/simulation/simulator.hpp"
#include "core/error.hpp"
#include "support/schedules.hpp"
#include "support/traffic.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;
using test::data;
using test::schedules_of;
using test::scratch;

namespace {

Problem on_one_node(Collective collective, Index elements, Rank ranks) {
  return Problem::on_one_node(collective, Partition::even(elements, ranks));
}

std::string defect_of(Problem const& problem, Algorithm algorithm) {
  auto const finding = find_defect(problem, make_schedules(problem, algorithm));
  return finding ? finding->message : "";
}

/// Everybody's two elements, added up by everybody in the memory of two nodes of two ranks, one pair sending the sums
/// across: all kinds of moves in one schedule. Rank 2i and 2i+1 are neighbours.
struct TwoNodes {
  Problem problem{.collective = Collective::all_reduce,
                  .partition = Partition::even(2, 4),
                  .topology = Topology::block(4, 2),
                  .shared_memory = true};

  std::vector<Schedule> schedules() const {
    std::vector<std::vector<Round>> rounds;
    for (Rank rank = 0; rank < 4; ++rank) {
      Index const own = rank % 2; // which element this rank adds up
      Rank const across = (rank + 2) % 4;
      Rank const neighbour = rank % 2 == 0 ? rank + 1 : rank - 1;
      Slice const sum = data(own, own + 1);
      rounds.push_back(
          {{Move::node_barrier()},
           {Move::combine(data(own, own + 1, every_neighbour), sum)},
           {Move::send(across, sum), Move::receive(across, scratch(0, 1)), Move::reduce(scratch(0, 1), sum)},
           {Move::node_barrier()},
           {Move::copy(data(1 - own, 2 - own, neighbour), data(1 - own, 2 - own))},
           {Move::node_barrier()}});
    }
    return schedules_of(problem, rounds, 1);
  }
};

} // namespace

TEST_CASE("the cost of a proof does not depend on the number of elements", "[comm][simulator]") {
  CHECK(defect_of(on_one_node(Collective::all_reduce, Index{1} << 60, 100), Algorithm::ring) == "");
}

TEST_CASE("schedules that mix messages and shared memory on two nodes are proved", "[comm][simulator]") {
  TwoNodes const example;
  auto const finding = find_defect(example.problem, example.schedules());
  CHECK((finding ? finding->message : "") == "");
}

TEST_CASE("the balanced tree is written as it is evaluated", "[comm][simulator]") {
  CHECK(balanced_tree(1) == "0");
  CHECK(balanced_tree(2) == "(0+1)");
  CHECK(balanced_tree(3) == "((0+1)+2)");
  CHECK(balanced_tree(4) == "((0+1)+(2+3))");
  CHECK(balanced_tree(5) == "(((0+1)+(2+3))+4)");
  CHECK(balanced_tree(7) == "(((0+1)+(2+3))+((4+5)+6))");
  CHECK_THROWS_AS(balanced_tree(0), Error);
}

TEST_CASE("the reduction tree tells the order of additions", "[comm][simulator]") {
  Problem const problem = on_one_node(Collective::all_reduce, 4, 4);
  auto const ring = make_schedules(problem, Algorithm::ring);
  // block b is added up from rank b+1 on to rank b; of two sides the one with the lowest rank is written first
  CHECK(reduction_tree(problem, ring, 2, 3) == "(((0+1)+2)+3)");
  CHECK(reduction_tree(problem, ring, 1, 0) == "(0+((1+2)+3))");
  CHECK(reduction_tree(problem, ring, 3, 1) == "((0+(2+3))+1)");

  TwoNodes const example;
  CHECK(reduction_tree(example.problem, example.schedules(), 3, 1) == "((0+1)+(2+3))");
  CHECK_THROWS_AS(reduction_tree(problem, ring, 4, 0), Error);
  CHECK_THROWS_AS(reduction_tree(problem, ring, 0, 4), Error);
}

TEST_CASE("the reduction tree of a copied element is the rank it came from", "[comm][simulator]") {
  Problem const gather = on_one_node(Collective::all_gather, 5, 5);
  CHECK(reduction_tree(gather, make_schedules(gather, Algorithm::ring), 0, 3) == "3");

  Problem const scatter = on_one_node(Collective::scatter, 5, 5);
  auto const schedules = make_schedules(scatter, Algorithm::linear);
  CHECK(reduction_tree(scatter, schedules, 4, 4) == "0");
  CHECK_THROWS_AS(reduction_tree(scatter, schedules, 4, 3), Error); // not rank 4's: undefined there
}

TEST_CASE("a combine of parts adds them in the balanced tree", "[comm][simulator]") {
  Problem const problem = on_one_node(Collective::reduce, 1, 4);
  Round root{Move::receive(1, scratch(1, 2)), Move::receive(2, scratch(2, 3)), Move::receive(3, scratch(3, 4)),
             Move::copy(data(0, 1), scratch(0, 1)), Move::combine(scratch(0, 4), data(0, 1))};
  std::vector<Round> const leaf{{Move::send(0, data(0, 1))}};
  auto const schedules = schedules_of(problem, {{root}, leaf, leaf, leaf}, 4);
  CHECK_FALSE(find_defect(problem, schedules));
  CHECK(reduction_tree(problem, schedules, 0, 0) == "((0+1)+(2+3))");
  CHECK(count(problem, schedules, 4).busiest.reduced == 3);
}

TEST_CASE("counts are of the busiest rank, value by value, and of all ranks", "[comm][simulator]") {
  Problem problem = on_one_node(Collective::broadcast, 10, 4);
  problem.topology = Topology::block(4, 2);
  problem.root = 1;
  // the root sends 10 elements across and 10 inside; rank 2 hands on 4 and 6 of them inside
  auto const schedules =
      schedules_of(problem, {{{Move::receive(1, data(0, 10))}},
                             {{Move::send(2, data(0, 10)), Move::send(0, data(0, 10))}},
                             {{Move::receive(1, data(0, 10))}, {Move::send(3, data(0, 4)), Move::send(3, data(4, 10))}},
                             {{Move::receive(2, data(0, 4)), Move::receive(2, data(4, 10))}}});
  REQUIRE_FALSE(find_defect(problem, schedules));
  CollectiveCounts const counts = count(problem, schedules, 4);
  CHECK(counts.rounds == 2);
  CHECK(counts.barriers == 0);
  CHECK(counts.busiest == Traffic{.messages = 2, .bytes = 80, .inter_messages = 1, .inter_bytes = 40});
  CHECK(counts.total == Traffic{.messages = 4, .bytes = 120, .inter_messages = 1, .inter_bytes = 40});
  CHECK(count(problem, schedules, 4, 5).busiest.messages == 4); // of at most 5 elements each
}

TEST_CASE("shared memory counts as bytes read and written, barriers are no rounds", "[comm][simulator]") {
  TwoNodes const example;
  CollectiveCounts const counts = count(example.problem, example.schedules(), 4);
  CHECK(counts.rounds == 1);
  CHECK(counts.barriers == 3);
  // combine: two parts read, one written; copy: one read, one written
  CHECK(
      counts.busiest ==
      Traffic{
          .messages = 1, .bytes = 4, .reduced = 2, .inter_messages = 1, .inter_bytes = 4, .shared_bytes = (3 + 2) * 4});
  CHECK(counts.total == 4 * counts.busiest);
}

TEST_CASE("rounds are the longest chain of messages, over all ranks", "[comm][simulator]") {
  // rank 0 has one round, but its message waits for what rank 2 sends to rank 1 and rank 1 to rank 0
  Problem const problem = on_one_node(Collective::reduce, 1, 4);
  std::vector<Round> const hand_on{{Move::receive(2, scratch(0, 1)), Move::reduce(scratch(0, 1), data(0, 1))},
                                   {Move::send(0, data(0, 1))}};
  auto const schedules =
      schedules_of(problem,
                   {{{Move::receive(1, scratch(0, 1)), Move::receive(3, scratch(1, 2)),
                      Move::reduce(scratch(0, 1), data(0, 1)), Move::reduce(scratch(1, 2), data(0, 1))}},
                    hand_on,
                    {{Move::send(1, data(0, 1))}},
                    {{Move::send(0, data(0, 1))}}},
                   2);
  REQUIRE_FALSE(find_defect(problem, schedules));
  CHECK(count(problem, schedules, 4).rounds == 2);
}
