// The closed forms of the ring all-reduce, written down from its definition: rank r sends every block but its own
// while the sums are made (it starts with block r-1 and stops before block r), and every block but its right-hand
// neighbour's while they are handed on; it adds to every block but its left-hand neighbour's.

#include "comm/registry.hpp"
#include "comm/simulator.hpp"
#include "core/error.hpp"
#include "support/traffic.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace trainstone;

namespace {

constexpr std::size_t bytes_of_float = 4;

std::vector<Schedule> ring(Partition const& partition) {
  return make_schedules(Collective::all_reduce, Algorithm::ring, partition);
}

std::string defect_of(Partition const& partition) {
  auto const finding = find_defect(ring(partition));
  return finding ? finding->message : "";
}

std::vector<std::vector<Index>> block_sizes(std::size_t ranks) {
  std::vector<Index> growing, with_empty_blocks, last_only(ranks, 0), first_only(ranks, 0);
  for (std::size_t i = 0; i < ranks; ++i) {
    growing.push_back(static_cast<Index>(3 * i + 1));
    with_empty_blocks.push_back(i % 3 == 1 ? 0 : static_cast<Index>(i + 2));
  }
  last_only.back() = 11;
  first_only.front() = 1;
  return {growing, with_empty_blocks, last_only, first_only, std::vector<Index>(ranks, 0)};
}

/// From the definition above.
CollectiveCounts expected_counts(std::vector<Index> const& sizes) {
  std::size_t const n = sizes.size();
  CollectiveCounts counts;
  for (std::size_t r = 0; r < n; ++r) {
    std::uint64_t messages = 0, sent = 0, reduced = 0;
    for (std::size_t block = 0; block < n && n > 1; ++block) {
      auto const size = static_cast<std::uint64_t>(sizes[block]);
      std::uint64_t const times = (block != r ? 1u : 0u) + (block != (r + 1) % n ? 1u : 0u);
      messages += size > 0 ? times : 0;
      sent += times * size;
      reduced += block != (r + n - 1) % n ? size : 0;
    }
    counts.busiest.messages = std::max(counts.busiest.messages, messages);
    counts.busiest.bytes = std::max(counts.busiest.bytes, sent * bytes_of_float);
    counts.busiest.reduced = std::max(counts.busiest.reduced, reduced);
    counts.total.messages += messages;
    counts.total.bytes += sent * bytes_of_float;
    counts.total.reduced += reduced;
  }
  bool const anything = counts.total.messages > 0;
  counts.rounds = anything ? static_cast<Index>(2 * (n - 1)) : 0;
  return counts;
}

void check_equal(CollectiveCounts const& counted, CollectiveCounts const& expected) {
  CHECK(counted.rounds == expected.rounds);
  CHECK(counted.busiest.messages == expected.busiest.messages);
  CHECK(counted.busiest.bytes == expected.busiest.bytes);
  CHECK(counted.busiest.reduced == expected.busiest.reduced);
  CHECK(counted.total.messages == expected.total.messages);
  CHECK(counted.total.bytes == expected.total.bytes);
  CHECK(counted.total.reduced == expected.total.reduced);
}

} // namespace

TEST_CASE("the ring all-reduce is proved on 1 to 17 ranks for even partitions", "[comm][simulator]") {
  for (Rank ranks = 1; ranks <= 17; ++ranks) {
    for (Index const elements : {0, 1, 2, 3, 7, 16, 17, 1009}) {
      INFO(elements << " elements on " << ranks << " ranks");
      CHECK(defect_of(Partition::even(elements, ranks)) == "");
    }
  }
}

TEST_CASE("the ring all-reduce is proved on 1 to 17 ranks for uneven and empty blocks", "[comm][simulator]") {
  for (std::size_t ranks = 1; ranks <= 17; ++ranks) {
    for (std::vector<Index> const& sizes : block_sizes(ranks)) {
      INFO(ranks << " ranks, first block " << sizes.front() << ", last block " << sizes.back());
      CHECK(defect_of(Partition::of_sizes(sizes)) == "");
    }
  }
}

TEST_CASE("the ring all-reduce is proved on 100 ranks and on buffers above 2^32 elements", "[comm][simulator]") {
  CHECK(defect_of(Partition::even(100'003, 100)) == "");
  CHECK(defect_of(Partition::even(Index{1} << 33, 5)) == "");
}

TEST_CASE("counts of the ring equal 2(N-1), 2S(N-1)/N, 2(N-1)S and S(N-1)/N where N divides S", "[comm][simulator]") {
  for (Rank ranks = 1; ranks <= 17; ++ranks) {
    auto const n = static_cast<std::uint64_t>(ranks);
    std::uint64_t const s = 12 * n; // elements
    CollectiveCounts const counts = count(ring(Partition::even(static_cast<Index>(s), ranks)), bytes_of_float);
    INFO(ranks << " ranks");
    CHECK(counts.rounds == 2 * (ranks - 1));
    CHECK(counts.busiest.messages == 2 * (n - 1));
    CHECK(counts.busiest.bytes == 2 * (s / n) * (n - 1) * bytes_of_float);
    CHECK(counts.busiest.reduced == s / n * (n - 1));
    CHECK(counts.total.bytes == 2 * (n - 1) * s * bytes_of_float);
  }
}

TEST_CASE("counts of the ring equal the exact sums of block sizes", "[comm][simulator]") {
  for (std::size_t ranks = 1; ranks <= 17; ++ranks) {
    std::vector<std::vector<Index>> all_sizes = block_sizes(ranks);
    std::vector<Index> even(ranks, 58); // 58 N + 3 elements where there are so many blocks
    for (std::size_t i = 0; i < std::min<std::size_t>(3, ranks); ++i) ++even[i];
    all_sizes.push_back(even);
    for (std::vector<Index> const& sizes : all_sizes) {
      INFO(ranks << " ranks, first block " << sizes.front() << ", last block " << sizes.back());
      check_equal(count(ring(Partition::of_sizes(sizes)), bytes_of_float), expected_counts(sizes));
    }
  }
}

TEST_CASE("the price of the ring is 2(N-1) alpha + 2 beta S(N-1)/N + gamma S(N-1)/N", "[comm][simulator]") {
  Machine const machine{.alpha = 2e-6, .beta = 1e-10, .gamma = 3e-11};
  for (Rank ranks = 1; ranks <= 17; ++ranks) {
    double const n = ranks;
    Index const elements = 1000 * ranks;
    double const s = static_cast<double>(elements) * bytes_of_float;
    double const share = s * (n - 1) / n;
    double const expected = 2 * (n - 1) * machine.alpha + 2 * machine.beta * share + machine.gamma * share;
    // at most 3 roundings per round, 2 (N-1) = 32 rounds: below 100 eps
    CHECK(price(ring(Partition::even(elements, ranks)), bytes_of_float, machine) ==
          Catch::Approx(expected).epsilon(100 * 2.3e-16).margin(0));
  }
}

TEST_CASE("messages queue for the one port but not in the count of rounds", "[comm][simulator]") {
  // rank 0 sends one element to each of three others, in one round
  std::vector<Schedule> schedules;
  Slice const data{BufferId::data, {0, 1}};
  for (Rank rank = 0; rank < 4; ++rank) {
    Schedule schedule{.collective = Collective::all_reduce,
                      .algorithm = Algorithm::ring,
                      .rank = rank,
                      .ranks = 4,
                      .elements = 1,
                      .rounds = {}};
    if (rank == 0) schedule.rounds = {{Move::send(1, data), Move::send(2, data), Move::send(3, data)}};
    if (rank != 0) schedule.rounds = {{Move::receive(0, data)}};
    schedules.push_back(schedule);
  }
  CHECK(count(schedules, 4).rounds == 1);
  CHECK(count(schedules, 4).busiest == Traffic{3, 12, 0});
  CHECK(price(schedules, 4, {.alpha = 1, .beta = 0.5, .gamma = 0}) == 9);
}
