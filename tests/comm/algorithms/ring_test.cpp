// The closed forms of the rings, written down from their definition: while the sums are made rank r sends every block
// but its own (it starts with block r-1 and stops before block r) and adds to every block but its left-hand
// neighbour's; while they are handed on it sends every block but its right-hand neighbour's.

#include "comm/algorithms/closed_forms.hpp"

#include <algorithm>
#include <utility>

using namespace trainstone;
using namespace trainstone::test;

namespace {

enum class Half { reduce_scatter, all_gather };

/// What a ring to the right does with blocks of these sizes; a ring to the left is its mirror image.
void tell_ring(RankByRank& expected, std::vector<Index> const& sizes, Half half, bool to_the_left = false) {
  std::size_t const n = sizes.size();
  for (std::size_t r = 0; r < n && n > 1; ++r) {
    std::size_t const next = (to_the_left ? r + n - 1 : r + 1) % n;
    std::size_t const previous = (to_the_left ? r + 1 : r + n - 1) % n;
    for (std::size_t block = 0; block < n; ++block) {
      if (half == Half::reduce_scatter && block != r) expected.sends(r, sizes[block]);
      if (half == Half::reduce_scatter && block != previous) expected.adds(r, sizes[block]);
      if (half == Half::all_gather && block != next) expected.sends(r, sizes[block]);
    }
  }
}

std::vector<Index> halves(std::vector<Index> sizes, Index rounding) {
  for (Index& size : sizes) size = (size + rounding) / 2;
  return sizes;
}

Index messages_longer_than(std::vector<Schedule> const& schedules, Index elements) {
  Index found = 0;
  for (Schedule const& schedule : schedules) {
    for (Round const& round : schedule.rounds) {
      found += std::ranges::count_if(round, [&](Move const& m) { return m.is_message() && m.size() > elements; });
    }
  }
  return found;
}

Schedule segmented(Partition const& partition, Index segment, Rank rank) {
  Problem problem = Problem::on_one_node(Collective::all_reduce, partition);
  problem.segment = segment;
  return make_schedule(problem, Algorithm::segmented_ring, rank);
}

} // namespace

TEST_CASE("counts of the ring equal the closed forms where N divides S", "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    INFO(n << " ranks");
    Index const s = Index{12} * n;
    Index const most = s / n * (n - 1);
    Partition const even = Partition::even(s, n);
    check_row(counted(Collective::reduce_scatter, Algorithm::ring, even), {n - 1, n - 1, most, (n - 1) * s, most});
    check_row(counted(Collective::all_gather, Algorithm::ring, even), {n - 1, n - 1, most, (n - 1) * s, 0});
    check_row(counted(Collective::all_reduce, Algorithm::ring, even),
              {2 * (n - 1), 2 * (n - 1), 2 * most, 2 * (n - 1) * s, most});
  }
}

TEST_CASE("counts of the ring equal the exact sums of block sizes", "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    for (std::vector<Index> const& sizes : uneven_block_sizes(n)) {
      Partition const partition = Partition::of_sizes(sizes);
      INFO(n << " ranks, first block " << sizes.front() << ", last block " << sizes.back());
      RankByRank reduce_scatter(n), all_gather(n), all_reduce(n);
      tell_ring(reduce_scatter, sizes, Half::reduce_scatter);
      tell_ring(all_gather, sizes, Half::all_gather);
      tell_ring(all_reduce, sizes, Half::reduce_scatter);
      tell_ring(all_reduce, sizes, Half::all_gather);
      check_traffic(counted(Collective::reduce_scatter, Algorithm::ring, partition), reduce_scatter);
      check_traffic(counted(Collective::all_gather, Algorithm::ring, partition), all_gather);
      CollectiveCounts const counts = counted(Collective::all_reduce, Algorithm::ring, partition);
      check_traffic(counts, all_reduce);
      // even a single block visits all ranks twice, one after the other
      CHECK(counts.rounds == (partition.elements() > 0 ? 2 * (n - 1) : 0));
    }
  }
}

TEST_CASE("the ring crosses each node border once per round, however ranks are placed", "[comm][algorithms]") {
  for (Topology const& topology : {Topology::block(12, 3), Topology::cyclic(12, 3), Topology::cyclic(12, 5),
                                   Topology::block(13, 4), Topology({0, 1, 1, 0, 2, 2, 2, 0, 1, 1, 1, 1})}) {
    Rank const n = topology.ranks();
    Partition const even = Partition::even(7 * n, n);
    auto const borders = static_cast<std::uint64_t>(topology.nodes());
    auto const rounds = static_cast<std::uint64_t>(n - 1);
    for (auto const& [collective, halves_run] :
         {std::pair(Collective::reduce_scatter, 1u), {Collective::all_gather, 1u}, {Collective::all_reduce, 2u}}) {
      Problem const problem{.collective = collective, .partition = even, .topology = topology};
      INFO(to_string(collective) << " on " << n << " ranks, " << borders << " nodes");
      CHECK(defect_of(problem, Algorithm::ring) == "");
      CHECK(counted(problem, Algorithm::ring).total.inter_messages == halves_run * rounds * borders);
    }
  }
}

TEST_CASE("the two-way ring sends half of every block each way, in the rounds of the ring", "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    INFO(n << " ranks");
    Index const s = Index{12} * n;
    Index const most = s / n * (n - 1);
    check_row(counted(Collective::all_reduce, Algorithm::bidirectional_ring, Partition::even(s, n)),
              {2 * (n - 1), 4 * (n - 1), 2 * most, 2 * (n - 1) * s, most});
    for (std::vector<Index> const& sizes : uneven_block_sizes(n)) {
      Partition const partition = Partition::of_sizes(sizes);
      INFO(n << " ranks, first block " << sizes.front() << ", last block " << sizes.back());
      RankByRank expected(n);
      for (Half const half : {Half::reduce_scatter, Half::all_gather}) {
        tell_ring(expected, halves(sizes, 1), half);
        tell_ring(expected, halves(sizes, 0), half, true);
      }
      check_traffic(counted(Collective::all_reduce, Algorithm::bidirectional_ring, partition), expected);
    }
  }
}

TEST_CASE("both directions of the two-way ring are used in every round", "[comm][algorithms]") {
  Schedule const schedule = make_schedule(Problem::on_one_node(Collective::all_reduce, Partition::even(40, 5)),
                                          Algorithm::bidirectional_ring, 0);
  REQUIRE(schedule.rounds.size() == 8);
  for (Round const& round : schedule.rounds) {
    for (Action const action : {Action::send, Action::receive}) {
      for (Rank const neighbour : {1, 4}) {
        CHECK(std::ranges::count_if(round, [&](Move const& m) { return m.action == action && m.peer == neighbour; }) ==
              1);
      }
    }
  }
}

TEST_CASE("the segmented ring has the volume of the ring and 2(N-1) rounds per segment", "[comm][algorithms]") {
  for (Rank const n : {1, 2, 3, 4, 5, 7, 8, 13}) {
    for (Index const segment : {1, 2, 3, 7, 10, 11, 1000}) {
      Index const block = 21;
      Index const s = block * n;
      Index const pieces = (block + segment - 1) / segment;
      Problem problem = Problem::on_one_node(Collective::all_reduce, Partition::even(s, n));
      problem.segment = segment;
      INFO(n << " ranks, segments of " << segment);
      check_row(counted(problem, Algorithm::segmented_ring),
                {2 * (n - 1) * pieces, 2 * (n - 1) * pieces, 2 * block * (n - 1), 2 * (n - 1) * s, block * (n - 1)});
      CHECK(messages_longer_than(make_schedules(problem, Algorithm::segmented_ring), segment) == 0);
      CHECK(defect_of(problem, Algorithm::segmented_ring) == "");
    }
  }
}

TEST_CASE("the segmented ring sends the exact sums of uneven blocks", "[comm][algorithms]") {
  for (Rank const n : {1, 2, 3, 4, 5, 7, 8, 13}) {
    for (std::vector<Index> const& sizes : uneven_block_sizes(n)) {
      Partition const partition = Partition::of_sizes(sizes);
      RankByRank expected(n);
      for (Half const half : {Half::reduce_scatter, Half::all_gather}) tell_ring(expected, sizes, half);
      for (Index const segment : {1, 5, 1000}) {
        INFO(n << " ranks, first block " << sizes.front() << ", last block " << sizes.back() << ", by " << segment);
        Problem problem = Problem::on_one_node(Collective::all_reduce, partition);
        problem.segment = segment;
        CollectiveCounts const counts = counted(problem, Algorithm::segmented_ring);
        CHECK(counts.busiest.bytes == expected.busiest().bytes);
        CHECK(counts.busiest.reduced == expected.busiest().reduced);
        CHECK(counts.total.bytes == expected.total().bytes);
        CHECK(counts.total.reduced == expected.total().reduced);
        CHECK(defect_of(problem, Algorithm::segmented_ring) == "");
      }
    }
  }
}

TEST_CASE("segments are added while the next ones are under way", "[comm][algorithms]") {
  Schedule const schedule = segmented(Partition::even(24, 3), 4, 1); // two pieces per block
  REQUIRE(schedule.rounds.size() == 8);
  CHECK(schedule.scratch_elements == 8);
  CHECK(std::ranges::none_of(schedule.rounds[0], &Move::is_local));
  for (std::size_t round = 1; round <= 4; ++round) CHECK(schedule.rounds[round].front().action == Action::reduce);
  for (std::size_t round = 5; round < 8; ++round) CHECK(std::ranges::none_of(schedule.rounds[round], &Move::is_local));
}

TEST_CASE("a ring in segments of 16384 elements is the default, and of one piece the plain ring",
          "[comm][algorithms]") {
  CHECK(segmented(Partition::even(3 * 16384, 3), 0, 0).rounds.size() == 4);
  CHECK(segmented(Partition::even(3 * 16384 + 1, 3), 0, 0).rounds.size() == 8);
  Partition const small = Partition::even(17, 3);
  for (Rank rank = 0; rank < 3; ++rank) {
    std::vector<Round> const plain =
        make_schedule(Problem::on_one_node(Collective::all_reduce, small), Algorithm::ring, rank).rounds;
    std::vector<Round> const one_piece = segmented(small, 0, rank).rounds;
    REQUIRE(one_piece.size() == plain.size());
    for (std::size_t i = 0; i < plain.size(); ++i) {
      CHECK(std::ranges::equal(plain[i], one_piece[i], {}, &Move::action, &Move::action));
      CHECK(std::ranges::equal(plain[i], one_piece[i], {}, &Move::size, &Move::size));
    }
  }
}
