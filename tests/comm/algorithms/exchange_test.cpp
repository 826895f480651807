// All-to-all, barrier, parameter servers, and messages to a rank at a distance.

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

TEST_CASE("a message to a rank at a distance carries half of the data, and to itself none is sent",
          "[comm][algorithms]") {
  for (Rank ranks = 1; ranks <= 9; ++ranks)
    for (Rank distance = 0; distance <= 2 * ranks; ++distance)
      for (Index const s : {0, 1, 2, 7, 120}) {
        INFO(ranks << " ranks, distance " << distance << ", " << s << " elements");
        Problem problem = Problem::on_one_node(Collective::send_receive, Partition::even(s, ranks));
        problem.distance = distance;
        CHECK(defect_of(problem, Algorithm::direct) == "");
        auto const counts = counted(problem, Algorithm::direct);
        Index const messages = distance % ranks == 0 || s < 2 ? 0 : 1, sent = messages * (s / 2);
        check_row(counts, {messages, messages, sent, ranks * sent, 0});
      }
}

TEST_CASE("in a node's memory partners copy from each other, and send nothing", "[comm][algorithms]") {
  for (Rank ranks = 2; ranks <= 9; ++ranks)
    for (Rank distance = 1; distance < 2 * ranks; ++distance) {
      Problem problem = Problem::on_one_node(Collective::send_receive, Partition::even(14, ranks));
      problem.distance = distance;
      problem.shared_memory = true;
      INFO(ranks << " ranks, distance " << distance);
      CHECK(defect_of(problem, Algorithm::shared_copy) == "");
      CollectiveCounts const counts = count(problem, make_schedules(problem, Algorithm::shared_copy), 1);
      CHECK(counts.total.messages == 0);
      CHECK(counts.barriers == (distance % ranks == 0 ? 0 : 2));
    }
}

TEST_CASE("a message in one direction is one, a copy and a signal carry no data", "[comm][algorithms]") {
  for (Rank ranks = 1; ranks <= 9; ++ranks)
    for (Rank root = 0; root < ranks; ++root)
      for (Rank distance = 0; distance <= ranks; ++distance) {
        INFO(ranks << " ranks, root " << root << ", distance " << distance);
        Problem send = Problem::on_one_node(Collective::send, Partition::even(7, ranks));
        send.root = root;
        send.distance = distance;
        CHECK(defect_of(send, Algorithm::direct) == "");
        Index const messages = distance % ranks == 0 ? 0 : 1;
        check_row(counted(send, Algorithm::direct), {messages, messages, 7 * messages, 7 * messages, 0});
      }
  for (Rank ranks = 1; ranks <= 9; ++ranks) {
    Index const messages = ranks > 1 ? 1 : 0;
    check_row(counted(Collective::copy, Algorithm::direct, Partition::even(14, ranks)), {0, 0, 0, 0, 0});
    check_row(counted(Collective::signal_wait, Algorithm::direct, Partition::even(0, ranks)),
              {messages, messages, 0, 0, 0});
  }
}

TEST_CASE("a signal that comes from another rank than the one that is waited for is a defect", "[comm][algorithms]") {
  Problem problem = Problem::on_one_node(Collective::signal_wait, Partition::even(0, 5));
  std::vector<Schedule> schedules = make_schedules(problem, Algorithm::direct);
  CHECK(!find_defect(problem, schedules));
  problem.distance = 2;
  auto const finding = find_defect(problem, schedules);
  REQUIRE(finding);
  CHECK(finding->defect == Defect::unheard_rank);
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
