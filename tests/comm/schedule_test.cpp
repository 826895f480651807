#include "comm/algorithms/registry.hpp"
#include "comm/execution/local_moves.hpp"
#include "comm/schedule/counters.hpp"
#include "comm/schedule/schedule_builder.hpp"
#include "core/error.hpp"
#include "support/traffic.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <limits>
#include <set>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("the ring on two ranks is the schedule that one writes by hand", "[comm][schedule]") {
  Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::of_sizes({3, 2}));
  Schedule const schedule = make_schedule(problem, Algorithm::ring, 0);
  Slice const first{BufferId::data, {0, 3}};
  Slice const second{BufferId::data, {3, 5}};
  Slice const received{BufferId::scratch, {0, 3}};
  CHECK(schedule.elements == 5);
  CHECK(schedule.scratch_elements == 3);
  REQUIRE(schedule.rounds.size() == 2);
  CHECK(schedule.rounds[0] == Round{Move::receive(1, received), Move::send(1, second), Move::reduce(received, first)});
  CHECK(schedule.rounds[1] == Round{Move::receive(1, second), Move::send(1, first)});
}

TEST_CASE("every algorithm is found by the name that decks use", "[comm][schedule]") {
  for (RegisteredAlgorithm const& line : registered_algorithms()) {
    CHECK(parse_collective(to_string(line.collective)) == line.collective);
    CHECK(parse_algorithm(line.collective, to_string(line.algorithm)) == line.algorithm);
    CHECK(find_algorithm(line.collective, line.algorithm).make == line.make);
  }
  CHECK_THROWS_MATCHES(parse_algorithm(Collective::all_reduce, "rings"), InputError,
                       MessageMatches(ContainsSubstring("\"rings\"") && ContainsSubstring("ring")));
  CHECK_THROWS_MATCHES(parse_collective("allreduce"), InputError,
                       MessageMatches(ContainsSubstring("\"allreduce\"") && ContainsSubstring("all_reduce")));
  CHECK_THROWS_AS(find_algorithm(Collective::barrier, Algorithm::ring), Error);
}

TEST_CASE("no collective and no algorithm is missing from its list", "[comm][schedule]") {
  // Counters have a place for each; that the lists are in the enumerators' order is asserted where they are named.
  CHECK(to_string(static_cast<Collective>(collectives.size())) == "unknown");
  CHECK(to_string(static_cast<Algorithm>(algorithms.size())) == "unknown");
}

TEST_CASE("names of collectives and algorithms are all different", "[comm][schedule]") {
  std::set<std::string_view> names;
  for (Collective const collective : collectives) names.insert(to_string(collective));
  CHECK(names.size() == collectives.size());
  names.clear();
  for (Algorithm const algorithm : algorithms) names.insert(to_string(algorithm));
  CHECK(names.size() == algorithms.size());
  CHECK_FALSE(names.contains("unknown"));
}

TEST_CASE("a rank that does not exist has no schedule", "[comm][schedule]") {
  Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(7, 3));
  CHECK_THROWS_AS(make_schedule(problem, Algorithm::ring, 3), Error);
  CHECK_THROWS_AS(make_schedule(problem, Algorithm::ring, -1), Error);
}

TEST_CASE("a problem that contradicts itself has no schedules", "[comm][schedule]") {
  Problem const right = Problem::on_one_node(Collective::all_reduce, Partition::even(7, 3));
  CHECK(make_schedules(right, Algorithm::ring).size() == 3);
  Problem wrong = right;
  SECTION("another number of ranks on nodes") { wrong.topology = Topology::one_node(4); }
  SECTION("a root where there is none") { wrong.root = 1; }
  SECTION("servers where there are none") { wrong.servers = 1; }
  SECTION("segments of negative length") { wrong.segment = -1; }
  CHECK_THROWS_AS(make_schedules(wrong, Algorithm::ring), Error);

  Problem barrier = Problem::on_one_node(Collective::barrier, Partition::even(1, 3));
  CHECK_THROWS_AS(make_schedules(barrier, Algorithm::dissemination), Error);
}

TEST_CASE("a schedule says what other ranks must agree on", "[comm][schedule]") {
  Problem const problem = Problem::on_one_node(Collective::broadcast, Partition::even(7, 4));
  auto const agreement = [](Problem const& of) {
    return make_schedule(of, Algorithm::scatter_all_gather, 1).agreement;
  };
  CHECK(agreement(problem) == agreement(problem));
  Problem other = problem;
  SECTION("root") { other.root = 2; }
  SECTION("blocks") { other.partition = Partition::of_sizes({2, 2, 1, 2}); }
  SECTION("nodes") { other.topology = Topology::block(4, 2); }
  SECTION("order of nodes") { other.topology = Topology::cyclic(4, 2); }
  SECTION("shared memory") { other.shared_memory = true; }
  CHECK(agreement(other) != agreement(problem));
}

TEST_CASE("ranks agree on segments where there are some, however they are named", "[comm][schedule]") {
  Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(7, 4));
  auto const agreement = [&](Algorithm algorithm, Index segment) {
    Problem other = problem;
    other.segment = segment;
    return make_schedule(other, algorithm, 1).agreement;
  };
  CHECK(agreement(Algorithm::segmented_ring, 2) != agreement(Algorithm::segmented_ring, 3));
  CHECK(agreement(Algorithm::segmented_ring, 0) == agreement(Algorithm::segmented_ring, default_segment));
  CHECK(agreement(Algorithm::ring, 2) == agreement(Algorithm::ring, 3));
}

TEST_CASE("a combine of something else than whole parts is refused", "[comm][schedule]") {
  Problem problem = Problem::on_one_node(Collective::all_reduce, Partition::even(12, 3));
  problem.shared_memory = true;
  ScheduleBuilder builder(problem, Algorithm::ordered, 0);
  CHECK_NOTHROW(builder.combine(scratch_slice({0, 12}), data_slice({0, 4})));
  CHECK_NOTHROW(builder.combine(data_slice({0, 4}, every_neighbour), data_slice({0, 4})));
  CHECK_THROWS_AS(builder.combine(scratch_slice({0, 11}), data_slice({0, 4})), Error);
  CHECK_THROWS_AS(builder.combine(scratch_slice({0, 3}), data_slice({0, 4})), Error);
  CHECK_THROWS_AS(builder.combine(data_slice({0, 8}, every_neighbour), data_slice({0, 4})), Error);
}

TEST_CASE("more segments than can be counted are refused", "[comm][schedule]") {
  Problem problem = Problem::on_one_node(Collective::all_reduce, Partition::even((Index{1} << 40) + 1, 3));
  problem.segment = 1;
  CHECK_THROWS_AS(make_schedule(problem, Algorithm::pipelined_tree, 0), InputError);
}

TEST_CASE("predicted traffic counts sends and reduces, and cuts long messages", "[comm][schedule]") {
  Slice const seven{BufferId::data, {0, 7}};
  Slice const six{BufferId::data, {7, 13}};
  Slice const scratch{BufferId::scratch, {0, 7}};
  Schedule schedule{Collective::all_reduce, Algorithm::ring, 0, 2, 13, 7, {}, {}};
  schedule.rounds = {{Move::send(1, seven), Move::receive(1, scratch), Move::reduce(scratch, seven)},
                     {Move::send(1, six)},
                     {},
                     {Move::copy(scratch, seven)}};
  Topology const together = Topology::one_node(2);
  CHECK(predict_traffic(schedule, together, 4) == Traffic{2, 13 * 4, 7});
  CHECK(predict_traffic(schedule, together, 8, 7) == Traffic{2, 13 * 8, 7});
  CHECK(predict_traffic(schedule, together, 8, 6) == Traffic{3, 13 * 8, 7});
  CHECK(predict_traffic(schedule, together, 8, 3) == Traffic{3 + 2, 13 * 8, 7});
  CHECK(predict_traffic(schedule, together, 8, 1) == Traffic{13, 13 * 8, 7});
  CHECK(predict_traffic(schedule, Topology::block(2, 2), 8, 6) == Traffic{3, 13 * 8, 7, 3, 13 * 8});
  CHECK_THROWS_AS(predict_traffic(schedule, together, 8, 0), Error);
}

TEST_CASE("a kernel per reduction, combine and copy, and per piece of the data that it reads or writes",
          "[comm][schedule]") {
  Slice const seven{BufferId::data, {0, 7}}, six{BufferId::data, {7, 13}}, scratch{BufferId::scratch, {0, 7}};
  Schedule schedule{Collective::all_reduce, Algorithm::ring, 0, 2, 13, 7, {}, {}};
  schedule.rounds = {{Move::send(1, seven), Move::receive(1, scratch), Move::reduce(scratch, seven)},
                     {Move::reduce({BufferId::scratch, {0, 0}}, {BufferId::data, {3, 3}})}, // of nothing: none
                     {Move::copy(six, {BufferId::scratch, {0, 6}})}};
  CHECK(kernels_of(schedule) == 2);
  Pieces pieces; // cut behind elements 2 and 9: once in `seven`, once in `six`
  for (Range const& piece : {Range{20, 22}, Range{30, 37}, Range{0, 4}}) pieces.append(piece);
  CHECK(kernels_of(schedule, pieces) == 4);
  // parts at elements 0, 4 and 8: cut at 2, and at 9 - 8 = 1
  schedule.rounds = {{Move::combine({BufferId::data, {0, 12}}, {BufferId::scratch, {0, 4}})}};
  CHECK(kernels_of(schedule) == 1);
  CHECK(kernels_of(schedule, pieces) == 3);
}

TEST_CASE("a ring above two gigabytes is cut into messages whose length is an int", "[comm][schedule]") {
  Index const limit = std::numeric_limits<int>::max();
  Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::of_sizes({2 * limit + 1, limit}));
  Schedule const schedule = make_schedule(problem, Algorithm::ring, 0);
  // sends block 1 once, block 0 once
  CHECK(predict_traffic(schedule, problem.topology, 4).messages == 1 + 3);
  CHECK(predict_traffic(schedule, problem.topology, 4).bytes == 4 * (3 * static_cast<std::uint64_t>(limit) + 1));
}
