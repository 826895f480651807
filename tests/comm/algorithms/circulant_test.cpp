// The closed forms of the circulant algorithms and of Bruck's all-gather, written down from their definition: a rank
// that holds s blocks from its own on and is to hold t gets those s away from the rank s behind it.

#include "comm/algorithms/closed_forms.hpp"

#include <algorithm>

using namespace trainstone;
using namespace trainstone::test;

namespace {

/// Blocks held after each round: n, and half of what follows, rounded up.
std::vector<std::size_t> halved(std::size_t n) {
  std::vector<std::size_t> held{n};
  while (held.front() > 1) held.insert(held.begin(), (held.front() + 1) / 2);
  return held;
}

/// 1, 2, 4, ..., n.
std::vector<std::size_t> doubled(std::size_t n) {
  std::vector<std::size_t> held{1};
  while (held.back() < n) held.push_back(std::min(2 * held.back(), n));
  return held;
}

void tell_all_gather(RankByRank& expected, std::vector<Index> const& sizes, std::vector<std::size_t> const& held) {
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    for (std::size_t i = 1; i < held.size(); ++i) expected.sends(r, sum_of(sizes, r, r + held[i] - held[i - 1]));
  }
}

/// The all-gather backwards: what came is sent back, what was sent comes back and is added.
void tell_reduce_scatter(RankByRank& expected, std::vector<Index> const& sizes, std::vector<std::size_t> const& held) {
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    for (std::size_t i = 1; i < held.size(); ++i) {
      expected.sends(r, sum_of(sizes, r + held[i - 1], r + held[i]));
      expected.adds(r, sum_of(sizes, r, r + held[i] - held[i - 1]));
    }
  }
}

std::ptrdiff_t copies(Schedule const& schedule) {
  std::ptrdiff_t found = 0;
  for (Round const& round : schedule.rounds) found += std::ranges::count(round, Action::copy, &Move::action);
  return found;
}

} // namespace

TEST_CASE("circulant and Bruck's algorithms take ceil(lg N) rounds and optimal volume on any ranks",
          "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    INFO(n << " ranks");
    Index const s = Index{12} * n;
    Index const most = s / n * (n - 1);
    Index const rounds = ceil_lg(n);
    Partition const even = Partition::even(s, n);
    check_row(counted(Collective::reduce_scatter, Algorithm::circulant, even),
              {rounds, rounds, most, (n - 1) * s, most});
    check_row(counted(Collective::all_gather, Algorithm::circulant, even), {rounds, rounds, most, (n - 1) * s, 0});
    check_row(counted(Collective::all_gather, Algorithm::bruck, even), {rounds, rounds, most, (n - 1) * s, 0});
    check_row(counted(Collective::all_reduce, Algorithm::circulant, even),
              {2 * rounds, 2 * rounds, 2 * most, 2 * (n - 1) * s, most});
  }
}

TEST_CASE("circulant and Bruck's algorithms send the exact sums of block sizes", "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    for (std::vector<Index> const& sizes : uneven_block_sizes(n)) {
      Partition const partition = Partition::of_sizes(sizes);
      INFO(n << " ranks, first block " << sizes.front() << ", last block " << sizes.back());
      RankByRank reduce_scatter(n), all_gather(n), bruck(n), all_reduce(n);
      tell_reduce_scatter(reduce_scatter, sizes, halved(sizes.size()));
      tell_all_gather(all_gather, sizes, halved(sizes.size()));
      tell_all_gather(bruck, sizes, doubled(sizes.size()));
      tell_reduce_scatter(all_reduce, sizes, halved(sizes.size()));
      tell_all_gather(all_reduce, sizes, halved(sizes.size()));
      check_traffic(counted(Collective::reduce_scatter, Algorithm::circulant, partition), reduce_scatter);
      check_traffic(counted(Collective::all_gather, Algorithm::circulant, partition), all_gather);
      check_traffic(counted(Collective::all_gather, Algorithm::bruck, partition), bruck);
      check_traffic(counted(Collective::all_reduce, Algorithm::circulant, partition), all_reduce);
    }
  }
}

TEST_CASE("a run of blocks is packed only where it goes on at the first block", "[comm][algorithms]") {
  Problem const problem = Problem::on_one_node(Collective::reduce_scatter, Partition::even(70, 7));
  // Skips 4, 2, 1: rank r sends blocks r+4 ... r+6, r+2 ... r+3, r+1. The first run lies in two pieces for ranks 1 and
  // 2, the second one for rank 4. A packed run takes two copies.
  std::vector<std::ptrdiff_t> const expected{0, 2, 2, 0, 2, 0, 0};
  for (Rank rank = 0; rank < 7; ++rank) {
    INFO("rank " << rank);
    CHECK(copies(make_schedule(problem, Algorithm::circulant, rank)) == expected[static_cast<std::size_t>(rank)]);
  }
}

TEST_CASE("a run that only reaches into empty blocks is not packed", "[comm][algorithms]") {
  for (std::vector<Index> const& sizes : {std::vector<Index>{0, 0, 0, 5, 5, 5, 5}, {5, 5, 5, 5, 0, 0, 0}}) {
    Problem const problem = Problem::on_one_node(Collective::all_gather, Partition::of_sizes(sizes));
    for (Algorithm const algorithm : {Algorithm::circulant, Algorithm::bruck}) {
      for (Schedule const& schedule : make_schedules(problem, algorithm)) CHECK(copies(schedule) == 0);
    }
  }
}

TEST_CASE("all ranks of a circulant all-reduce have the same sum", "[comm][algorithms]") {
  for (Rank const n : {2, 3, 5, 6, 7, 8, 13}) {
    Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::even(3 * n, n));
    auto const schedules = make_schedules(problem, Algorithm::circulant);
    for (Index element = 0; element < 3 * n; element += 2) {
      INFO(n << " ranks, element " << element);
      CHECK(common_tree(problem, schedules, element) == without_order(reduction_tree(problem, schedules, 0, element)));
    }
  }
}
