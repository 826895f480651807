#include "comm/counters.hpp"
#include "comm/registry.hpp"
#include "core/error.hpp"
#include "support/traffic.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("the ring on two ranks is the schedule that one writes by hand", "[comm][schedule]") {
  Schedule const schedule = make_schedule(Collective::all_reduce, Algorithm::ring, Partition::of_sizes({3, 2}), 0);
  Slice const first{BufferId::data, {0, 3}};
  Slice const second{BufferId::data, {3, 5}};
  Slice const received{BufferId::scratch, {0, 3}};
  CHECK(schedule.elements == 5);
  CHECK(schedule.scratch_elements == 3);
  REQUIRE(schedule.rounds.size() == 2);
  CHECK(schedule.rounds[0] == Round{Move::receive(1, received), Move::send(1, second), Move::reduce(received, first)});
  CHECK(schedule.rounds[1] == Round{Move::receive(1, second), Move::send(1, first)});
}

TEST_CASE("one rank has nothing to do", "[comm][schedule]") {
  for (RegisteredAlgorithm const& line : registered_algorithms()) {
    Schedule const schedule = make_schedule(line.collective, line.algorithm, Partition::even(7, 1), 0);
    CHECK(schedule.rounds.empty());
    CHECK(schedule.scratch_elements == 0);
  }
}

TEST_CASE("empty ranges make no moves", "[comm][schedule]") {
  for (RegisteredAlgorithm const& line : registered_algorithms()) {
    for (Schedule const& schedule : make_schedules(line.collective, line.algorithm, Partition::even(2, 5))) {
      for (Round const& round : schedule.rounds) {
        for (Move const& move : round) CHECK(move.size() > 0);
      }
    }
  }
}

TEST_CASE("every algorithm is found by the name that decks use", "[comm][schedule]") {
  for (RegisteredAlgorithm const& line : registered_algorithms()) {
    CHECK(parse_algorithm(line.collective, line.name) == line.algorithm);
    CHECK(line.name == to_string(line.algorithm));
  }
  CHECK_THROWS_MATCHES(parse_algorithm(Collective::all_reduce, "rings"), InputError,
                       MessageMatches(ContainsSubstring("\"rings\"") && ContainsSubstring("ring")));
}

TEST_CASE("a rank that does not exist has no schedule", "[comm][schedule]") {
  CHECK_THROWS_AS(make_schedule(Collective::all_reduce, Algorithm::ring, Partition::even(7, 3), 3), Error);
  CHECK_THROWS_AS(make_schedule(Collective::all_reduce, Algorithm::ring, Partition::even(7, 3), -1), Error);
}

TEST_CASE("predicted traffic counts sends and reduces, and cuts long messages", "[comm][schedule]") {
  Slice const seven{BufferId::data, {0, 7}};
  Slice const six{BufferId::data, {7, 13}};
  Slice const scratch{BufferId::scratch, {0, 7}};
  Schedule schedule{.collective = Collective::all_reduce, .algorithm = Algorithm::ring, .ranks = 2, .rounds = {}};
  schedule.rounds = {{Move::send(1, seven), Move::receive(1, scratch), Move::reduce(scratch, seven)},
                     {Move::send(1, six)},
                     {},
                     {Move::copy(scratch, seven)}};
  CHECK(predict_traffic(schedule, 4) == Traffic{2, 13 * 4, 7});
  CHECK(predict_traffic(schedule, 8, 7) == Traffic{2, 13 * 8, 7});
  CHECK(predict_traffic(schedule, 8, 6) == Traffic{3, 13 * 8, 7});
  CHECK(predict_traffic(schedule, 8, 3) == Traffic{3 + 2, 13 * 8, 7});
  CHECK(predict_traffic(schedule, 8, 1) == Traffic{13, 13 * 8, 7});
  CHECK_THROWS_AS(predict_traffic(schedule, 8, 0), Error);
}

TEST_CASE("a ring above two gigabytes is cut into messages whose length is an int", "[comm][schedule]") {
  Index const limit = std::numeric_limits<int>::max();
  Schedule const schedule =
      make_schedule(Collective::all_reduce, Algorithm::ring, Partition::of_sizes({2 * limit + 1, limit}), 0);
  // sends block 1 once, block 0 once
  CHECK(predict_traffic(schedule, 4).messages == 1 + 3);
  CHECK(predict_traffic(schedule, 4).bytes == 4 * (3 * static_cast<std::uint64_t>(limit) + 1));
}
