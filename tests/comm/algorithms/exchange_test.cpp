// All-to-all, barrier and parameter servers.

#include "comm/algorithms/totals.hpp"
#include "core/error.hpp"

#include <algorithm>

using namespace trainstone;
using namespace trainstone::test;

namespace {

Problem servers(Collective collective, Index elements, Rank workers, Rank count) {
  Problem problem = Problem::on_one_node(collective, server_partition(elements, workers, count));
  problem.servers = count;
  return problem;
}

} // namespace

TEST_CASE("the pairwise all-to-all sends every message once, in N-1 rounds", "[comm][algorithms]") {
  for (Rank const ranks : ranks_to_try()) {
    Index const others = ranks - 1;
    Index const s = Index{7} * ranks;
    INFO(ranks << " ranks");
    auto const counts = counted(Collective::all_to_all, Algorithm::pairwise, Partition::even(s, ranks));
    check_row(counts, {others, others, s * others / ranks, others * s, 0});
    CHECK(counts.total == in_all(ranks * others, others * s));
  }
}

TEST_CASE("the pairwise all-to-all of uneven blocks sends everything but what a rank keeps", "[comm][algorithms]") {
  for (Rank const ranks : ranks_to_try()) {
    for (std::vector<Index> const& sizes : block_sizes_to_try(ranks)) {
      INFO(text_of(sizes));
      RankByRank expected(ranks);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        for (std::size_t j = 0; j < sizes.size(); ++j) {
          if (i != j) expected.sends(i, sizes[(i + j) % sizes.size()]);
        }
      }
      Problem const problem = Problem::on_one_node(Collective::all_to_all, Partition::of_sizes(sizes));
      CHECK(defect_of(problem, Algorithm::pairwise) == "");
      auto const counts = counted(problem, Algorithm::pairwise);
      check_traffic(counts, expected);
      CHECK(counts.rounds <= ranks - 1); // where blocks are empty, the chain of messages has holes
      if (no_empty_block(sizes)) CHECK(counts.rounds == ranks - 1);
    }
  }
}

TEST_CASE("in the pairwise all-to-all only the first half of the messages waits in scratch", "[comm][algorithms]") {
  for (Rank ranks = 1; ranks <= 17; ++ranks) {
    Problem const problem = Problem::on_one_node(Collective::all_to_all, Partition::even(3 * ranks, ranks));
    for (Schedule const& schedule : make_schedules(problem, Algorithm::pairwise)) {
      CHECK(schedule.scratch_elements == 3 * (ranks / 2));
    }
  }
}

TEST_CASE("the dissemination barrier takes ceil(lg N) rounds of empty messages", "[comm][algorithms]") {
  for (Rank ranks = 1; ranks <= 100; ++ranks) {
    INFO(ranks << " ranks");
    auto const counts = counted(Collective::barrier, Algorithm::dissemination, Partition::even(0, ranks));
    check_row(counts, {ceil_lg(ranks), ceil_lg(ranks), 0, 0, 0});
    CHECK(counts.total == in_all(ranks * ceil_lg(ranks), 0));
  }
}

TEST_CASE("a push to K servers: workers send S in K messages, a server adds N-1 times S/K", "[comm][algorithms]") {
  for (Rank workers = 1; workers <= 16; ++workers) {
    for (Rank const k : {1, 2, 3, 5, 8}) {
      for (Index const s : {0, 1, 2, 7, 120, 1009}) {
        INFO(workers << " workers, " << k << " servers, " << s << " elements");
        Index const full = std::min<Index>(k, s); // servers with a block
        Problem const problem = servers(Collective::server_push, s, workers, k);
        CHECK(defect_of(problem, Algorithm::direct) == "");
        auto const counts = counted(problem, Algorithm::direct);
        check_row(counts, {s > 0 ? 1 : 0, full, s, workers * s, (workers - 1) * ((s + k - 1) / k)});
        CHECK(counts.total == in_all(workers * full, workers * s, (workers - 1) * s));
      }
    }
  }
}

TEST_CASE("a pull from K servers: a server sends N S/K in N messages", "[comm][algorithms]") {
  for (Rank workers = 1; workers <= 16; ++workers) {
    for (Rank const k : {1, 2, 3, 5, 8}) {
      for (Index const s : {0, 1, 2, 7, 120, 1009}) {
        INFO(workers << " workers, " << k << " servers, " << s << " elements");
        Problem const problem = servers(Collective::server_pull, s, workers, k);
        CHECK(defect_of(problem, Algorithm::direct) == "");
        auto const counts = counted(problem, Algorithm::direct);
        check_row(counts, {s > 0 ? 1 : 0, s > 0 ? workers : 0, workers * ((s + k - 1) / k), workers * s, 0});
        CHECK(counts.total == in_all(workers * std::min<Index>(k, s), workers * s));
      }
    }
  }
}

TEST_CASE("a server adds in the order of workers", "[comm][algorithms]") {
  Problem const problem = servers(Collective::server_push, 9, 5, 2);
  auto const schedules = make_schedules(problem, Algorithm::direct);
  CHECK(reduction_tree(problem, schedules, 5, 4) == "((((0+1)+2)+3)+4)");
  CHECK(reduction_tree(problem, schedules, 6, 5) == "((((0+1)+2)+3)+4)");
}

TEST_CASE("an ordered push adds in the balanced tree over the workers, in as much scratch", "[comm][algorithms]") {
  Problem const problem = servers(Collective::server_push, 12, 4, 3);
  auto const schedules = make_schedules(problem, Algorithm::ordered),
             direct = make_schedules(problem, Algorithm::direct);
  for (Rank server = 4; server < 7; ++server) {
    CHECK(reduction_tree(problem, schedules, server, 4 * (server - 4)) == "((0+1)+(2+3))");
    CHECK(schedules[static_cast<std::size_t>(server)].scratch_elements == 3 * 4);
    CHECK(direct[static_cast<std::size_t>(server)].scratch_elements == 3 * 4);
  }
}

TEST_CASE("a push or pull needs servers and workers", "[comm][algorithms]") {
  Problem problem = servers(Collective::server_push, 9, 2, 2);
  problem.servers = 0;
  CHECK_THROWS_AS(make_schedule(problem, Algorithm::direct, 0), Error);
  problem.servers = 4;
  CHECK_THROWS_AS(make_schedule(problem, Algorithm::direct, 0), Error);
  problem.servers = 1; // but blocks for two
  CHECK_THROWS_AS(make_schedule(problem, Algorithm::direct, 0), Error);
}
