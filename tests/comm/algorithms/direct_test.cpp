// The closed forms of direct exchange: everybody sends every other rank that one's block, or its own block to all.

#include "comm/algorithms/closed_forms.hpp"

#include <algorithm>

using namespace trainstone;
using namespace trainstone::test;

namespace {

void tell_exchange(RankByRank& reduce_scatter, RankByRank& all_gather, std::vector<Index> const& sizes) {
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    for (std::size_t other = 0; other < sizes.size(); ++other) {
      if (other == r) continue;
      reduce_scatter.sends(r, sizes[other]);
      reduce_scatter.adds(r, sizes[r]);
      all_gather.sends(r, sizes[r]);
    }
  }
}

} // namespace

TEST_CASE("counts of direct exchange equal the closed forms where N divides S", "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    INFO(n << " ranks");
    Index const s = Index{12} * n;
    Index const most = s / n * (n - 1);
    Index const once = n > 1 ? 1 : 0;
    Partition const even = Partition::even(s, n);
    check_row(counted(Collective::reduce_scatter, Algorithm::direct, even), {once, n - 1, most, (n - 1) * s, most});
    check_row(counted(Collective::reduce_scatter, Algorithm::ordered, even), {once, n - 1, most, (n - 1) * s, most});
    check_row(counted(Collective::all_gather, Algorithm::direct, even), {once, n - 1, most, (n - 1) * s, 0});
    check_row(counted(Collective::all_reduce, Algorithm::ordered, even),
              {2 * once, 2 * (n - 1), 2 * most, 2 * (n - 1) * s, most});
  }
}

TEST_CASE("counts of direct exchange equal the exact sums of block sizes", "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    for (std::vector<Index> const& sizes : uneven_block_sizes(n)) {
      Partition const partition = Partition::of_sizes(sizes);
      INFO(n << " ranks, first block " << sizes.front() << ", last block " << sizes.back());
      RankByRank reduce_scatter(n), all_gather(n), both(n);
      tell_exchange(reduce_scatter, all_gather, sizes);
      tell_exchange(both, both, sizes);
      check_traffic(counted(Collective::reduce_scatter, Algorithm::direct, partition), reduce_scatter);
      check_traffic(counted(Collective::reduce_scatter, Algorithm::ordered, partition), reduce_scatter);
      check_traffic(counted(Collective::all_gather, Algorithm::direct, partition), all_gather);
      check_traffic(counted(Collective::all_reduce, Algorithm::ordered, partition), both);
    }
  }
}

TEST_CASE("ordered adds every element in the balanced tree over the ranks, whatever their number and the partition",
          "[comm][algorithms]") {
  for (Rank n = 1; n <= 17; ++n) {
    for (Partition const& partition :
         {Partition::even(2 * n + 1, n), Partition::even(3, n), Partition::of_sizes(uneven_block_sizes(n)[2])}) {
      Problem const problem = Problem::on_one_node(Collective::all_reduce, partition);
      auto const schedules = make_schedules(problem, Algorithm::ordered);
      for (Index element = 0; element < partition.elements(); element += 5) {
        INFO(n << " ranks, " << partition.elements() << " elements, element " << element);
        for (Rank const rank : {0, n - 1}) CHECK(reduction_tree(problem, schedules, rank, element) == balanced_tree(n));
      }
    }
  }
}

TEST_CASE("ordered reduce-scatter gives every rank its block of the balanced tree", "[comm][algorithms]") {
  for (Rank n = 1; n <= 17; ++n) {
    Problem const problem = Problem::on_one_node(Collective::reduce_scatter, Partition::even(2 * n + 1, n));
    auto const schedules = make_schedules(problem, Algorithm::ordered);
    for (Rank const rank : {0, n - 1}) {
      INFO(n << " ranks, rank " << rank);
      CHECK(reduction_tree(problem, schedules, rank, problem.partition.range(rank).begin) == balanced_tree(n));
    }
  }
}

TEST_CASE("ordered adds up once, from contributions in the order of ranks", "[comm][algorithms]") {
  Problem const problem = Problem::on_one_node(Collective::all_reduce, Partition::of_sizes({4, 0, 2}));
  Schedule const schedule = make_schedule(problem, Algorithm::ordered, 2);
  CHECK(schedule.scratch_elements == 3 * 2);
  REQUIRE(schedule.rounds.size() == 2);
  CHECK(schedule.rounds[0] == Round{Move::copy({BufferId::data, {4, 6}}, {BufferId::scratch, {4, 6}}),
                                    Move::receive(1, {BufferId::scratch, {2, 4}}),
                                    Move::receive(0, {BufferId::scratch, {0, 2}}),
                                    Move::send(0, {BufferId::data, {0, 4}}),
                                    Move::combine({BufferId::scratch, {0, 6}}, {BufferId::data, {4, 6}})});
}
