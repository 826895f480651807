// Each way of breaking a schedule is found by its name, and the message says where.

#include "comm/algorithms/registry.hpp"
#include "comm/simulation/simulator.hpp"
#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

Problem const four_ranks = Problem::on_one_node(Collective::all_reduce, Partition::even(11, 4));

/// A correct ring of four ranks with blocks of 3, 3, 3 and 2 elements; rounds 0..2 reduce, 3..5 hand on.
std::vector<Schedule> ring_of_four() { return make_schedules(four_ranks, Algorithm::ring); }

Move& find_move(Schedule& schedule, std::size_t round, Action action) {
  auto const found = std::ranges::find(schedule.rounds[round], action, &Move::action);
  REQUIRE(found != schedule.rounds[round].end());
  return *found;
}

void drop_move(Schedule& schedule, std::size_t round, Action action) {
  std::erase_if(schedule.rounds[round], [&](Move const& move) { return move.action == action; });
}

void check_found(std::vector<Schedule> const& schedules, Defect defect, Rank rank, std::string const& words) {
  auto const found = find_defect(four_ranks, schedules);
  REQUIRE(found);
  INFO(found->message);
  CHECK(to_string(found->defect) == to_string(defect));
  CHECK(found->rank == rank);
  CHECK_THAT(found->message, ContainsSubstring(words));
}

} // namespace

TEST_CASE("a lost send is found as a receive that waits for ever", "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  drop_move(schedules[2], 5, Action::send);
  check_found(schedules, Defect::waits_for_ever, 3, "rank 3, round 5: receive of data [0, 3) from rank 2");
}

TEST_CASE("a lost receive is found as a send that waits for ever", "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  drop_move(schedules[1], 5, Action::receive);
  check_found(schedules, Defect::waits_for_ever, 0, "rank 0, round 5: send of data [6, 9) to rank 1");
}

TEST_CASE("a wrong peer is found as a wait for ever", "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  find_move(schedules[0], 2, Action::send).peer = 2;
  check_found(schedules, Defect::waits_for_ever, 0, "to rank 2");
  CHECK_THROWS_AS(count(four_ranks, schedules, 4), Error);
  CHECK_THROWS_AS(price(four_ranks, schedules, 4, {}), Error);
}

TEST_CASE("a cycle of receives before sends is found as a wait for ever", "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  for (Schedule& schedule : schedules) { // every rank waits for its left before it sends to its right
    Move const send = find_move(schedule, 0, Action::send);
    drop_move(schedule, 0, Action::send);
    schedule.rounds.insert(schedule.rounds.begin() + 1, Round{send});
  }
  check_found(schedules, Defect::waits_for_ever, 0, "round 0");
}

TEST_CASE("a lost reduce is found as a missing contribution", "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  drop_move(schedules[1], 2, Action::reduce); // the last addition to block 1, elements 3..5
  check_found(schedules, Defect::missing_contribution, 0, "element 3 holding rank");
}

TEST_CASE("a doubled reduce is found as a doubled contribution", "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  Move const again = find_move(schedules[3], 0, Action::reduce);
  schedules[3].rounds[0].push_back(again);
  check_found(schedules, Defect::doubled_contribution, 0, "element 3 holding rank 2 2 times");
}

TEST_CASE("a copy in place of a reduce is found as a missing contribution", "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  find_move(schedules[2], 1, Action::reduce).action = Action::copy;
  check_found(schedules, Defect::missing_contribution, 0, "holding rank 2 0 times");
}

TEST_CASE("a sent range that is off by one is found as mixed elements", "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  Range& range = find_move(schedules[3], 0, Action::send).from.range; // block 2
  range = {range.begin - 1, range.end - 1};
  check_found(schedules, Defect::mixed_elements, 0, "reduce of scratch");
}

TEST_CASE("a sent range that is off by one in the all-gather is found as a wrong element",
          "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  Range& range = find_move(schedules[1], 3, Action::send).from.range; // block 1
  range = {range.begin + 1, range.end + 1};
  check_found(schedules, Defect::wrong_element, 0, "element 3 being element 4");
}

TEST_CASE("a sent range that is too short is found as a length mismatch", "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  --find_move(schedules[0], 1, Action::send).from.range.end;
  check_found(schedules, Defect::length_mismatch, 1, "round 1 of rank 0");
}

TEST_CASE("a received range that is just being sent is found as read while written", "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  find_move(schedules[2], 4, Action::receive).to = find_move(schedules[2], 4, Action::send).from;
  check_found(schedules, Defect::read_while_written, 2, "round 4");
}

TEST_CASE("two receives into one range are found as read while written", "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  Move const receive = find_move(schedules[2], 4, Action::receive);
  schedules[2].rounds[4].push_back(receive);
  check_found(schedules, Defect::read_while_written, 2, "under way together");
}

TEST_CASE("a copy onto itself is found as read while written", "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  schedules[1].rounds[5].push_back(Move::copy({BufferId::data, {0, 4}}, {BufferId::data, {3, 7}}));
  check_found(schedules, Defect::read_while_written, 1, "overlaps itself");
}

TEST_CASE("scratch that nothing has written is found as an undefined read", "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  Move& reduce = find_move(schedules[0], 0, Action::reduce);
  Schedule& schedule = schedules[0];
  schedule.scratch_elements += 3;
  reduce.from.range = {reduce.from.range.begin + 3, reduce.from.range.end + 3};
  check_found(schedules, Defect::undefined_read, 0, "reduce of scratch [3, 6)");
}

TEST_CASE("an addition of something undefined is an undefined read", "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  Move& reduce = find_move(schedules[0], 0, Action::reduce);
  std::swap(reduce.from, reduce.to);
  schedules[0].scratch_elements += 3;
  reduce.to.range = {reduce.to.range.begin + 3, reduce.to.range.end + 3};
  check_found(schedules, Defect::undefined_read, 0, "reads element 3 of rank 0's scratch");
}

TEST_CASE("a local move under way together with messages is found where it disturbs them",
          "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  Round& round = schedules[1].rounds[5];
  Slice const received = find_move(schedules[1], 5, Action::receive).to;
  Slice const sent = find_move(schedules[1], 5, Action::send).from;
  Slice const scratch{BufferId::scratch, {0, 2}};
  SECTION("reading what is being received") {
    Slice const part{BufferId::data, {received.range.begin, received.range.begin + 2}};
    round.insert(round.begin(), Move::copy(part, scratch));
    check_found(schedules, Defect::read_while_written, 1, "under way together");
  }
  SECTION("writing what is being sent") {
    Slice const part{BufferId::data, {sent.range.begin, sent.range.begin + 2}};
    round.insert(round.begin(), {Move::copy(part, scratch), Move::copy(scratch, part)});
    check_found(schedules, Defect::read_while_written, 1, "copy of scratch [0, 2) into data");
  }
  SECTION("reading what is being sent disturbs nothing, nor do local moves each other") {
    Slice const part{BufferId::data, {sent.range.begin, sent.range.begin + 2}};
    round.insert(round.begin(), {Move::copy(part, scratch), Move::copy(part, scratch)});
    CHECK_FALSE(find_defect(four_ranks, schedules));
  }
  SECTION("after the messages it may do anything") {
    round.push_back(Move::copy({BufferId::data, {received.range.begin, received.range.begin + 2}}, scratch));
    CHECK_FALSE(find_defect(four_ranks, schedules));
  }
}

TEST_CASE("malformed moves and schedules are found before anything is played", "[comm][simulator][defects]") {
  auto schedules = ring_of_four();
  SECTION("no such peer") {
    find_move(schedules[2], 0, Action::send).peer = 4;
    check_found(schedules, Defect::malformed, 2, "no such peer");
  }
  SECTION("a message to oneself") {
    find_move(schedules[2], 0, Action::send).peer = 2;
    check_found(schedules, Defect::malformed, 2, "no such peer");
  }
  SECTION("outside the data") {
    find_move(schedules[3], 1, Action::send).from.range = {10, 12};
    check_found(schedules, Defect::malformed, 3, "data [10, 12)");
  }
  SECTION("outside the scratch") {
    --schedules[1].scratch_elements;
    check_found(schedules, Defect::malformed, 1, "scratch");
  }
  SECTION("an empty range") {
    Move& send = find_move(schedules[0], 0, Action::send);
    send.from.range.end = send.from.range.begin;
    check_found(schedules, Defect::malformed, 0, "empty");
  }
  SECTION("an empty round") {
    schedules[2].rounds.insert(schedules[2].rounds.begin() + 3, Round{});
    check_found(schedules, Defect::malformed, 2, "round 3: nothing is in it");
  }
  SECTION("lengths of a reduce") {
    ++find_move(schedules[0], 0, Action::reduce).to.range.end;
    check_found(schedules, Defect::malformed, 0, "lengths differ");
  }
  SECTION("a move in shared memory without neighbours") {
    schedules[0].rounds.push_back({Move::copy({BufferId::data, {0, 1}, 1}, {BufferId::data, {0, 1}})});
    check_found(schedules, Defect::malformed, 0, "owner is no neighbour");
  }
  SECTION("a node barrier without neighbours") {
    schedules[0].rounds.push_back({Move::node_barrier()});
    check_found(schedules, Defect::malformed, 0, "names no neighbours");
  }
  SECTION("parts of a combine that are not equal") {
    schedules[0].rounds.push_back({Move::combine({BufferId::data, {0, 5}}, {BufferId::scratch, {0, 2}})});
    check_found(schedules, Defect::malformed, 0, "lengths differ");
  }
  SECTION("a missing rank") {
    schedules.pop_back();
    check_found(schedules, Defect::malformed, 0, "3 schedules for 4 ranks");
  }
  SECTION("another rank's schedule") {
    std::swap(schedules[1], schedules[2]);
    check_found(schedules, Defect::malformed, 1, "rank 2 of 4");
  }
  SECTION("another number of elements") {
    schedules[3] =
        make_schedule(Problem::on_one_node(Collective::all_reduce, Partition::even(12, 4)), Algorithm::ring, 3);
    check_found(schedules, Defect::malformed, 3, "12 elements");
  }
}
