// Broadcast, reduce, gather, scatter. On a binomial tree the block of the rank that stands v places behind the root
// takes one hop per bit of v: from v to v without its lowest bit, and so on (backwards in a scatter). Everything about
// binomial gathers and scatters of uneven blocks follows from that.

#include "comm/algorithms/totals.hpp"

#include <algorithm>
#include <utility>

using namespace trainstone;
using namespace trainstone::test;

namespace {

Problem rooted(Collective collective, Partition const& partition, Rank root) {
  Problem problem = Problem::on_one_node(collective, partition);
  problem.root = root;
  return problem;
}

std::vector<Rank> some_roots(Rank ranks) {
  std::vector<Rank> roots{0, 1, ranks / 2, ranks - 2, ranks - 1};
  std::erase_if(roots, [&](Rank root) { return root < 0 || root >= ranks; });
  return roots;
}

/// Calls `claim` for 1 to 19 ranks, uneven blocks, several roots.
template <class Claim>
void for_uneven_blocks(Claim const& claim) {
  for (Rank ranks = 1; ranks <= 19; ++ranks) {
    for (std::vector<Index> const& sizes : block_sizes_to_try(ranks)) {
      for (Rank const root : some_roots(ranks)) {
        INFO(text_of(sizes) << ", root " << root);
        claim(sizes, root);
      }
    }
  }
}

std::size_t rank_at(std::size_t position, Rank root, std::size_t ranks) {
  return (position + static_cast<std::size_t>(root)) % ranks;
}

/// Elements on each edge of the tree: what goes between position v and its parent.
std::vector<Index> edge_loads(std::vector<Index> const& sizes, Rank root) {
  std::vector<Index> loads(sizes.size(), 0);
  for (std::size_t v = 1; v < sizes.size(); ++v) {
    for (std::size_t hop = v; hop > 0; hop &= hop - 1) loads[hop] += sizes[rank_at(v, root, sizes.size())];
  }
  return loads;
}

/// When position v has all of its subtree: it takes in its children one after the other, 1, 2, 4, ... places on.
Index gathered_after(std::vector<Index> const& loads, std::size_t v) {
  Index time = 0;
  for (std::size_t step = 1; v + step < loads.size() && v % (2 * step) == 0; step *= 2) {
    if (loads[v + step] > 0) time = std::max(time, gathered_after(loads, v + step)) + 1;
  }
  return time;
}

/// When the last position of v's subtree has its block, v having all of them at `time`.
Index scattered_after(std::vector<Index> const& loads, std::size_t v, Index time) {
  Index last = time;
  std::size_t step = 1;
  while (v + step < loads.size() && v % (2 * step) == 0) step *= 2;
  for (step /= 2; step > 0; step /= 2) {
    if (loads[v + step] == 0) continue;
    last = std::max(last, scattered_after(loads, v + step, ++time));
  }
  return std::max(last, time);
}

/// The table's rooted collectives that do not work in shared memory.
std::vector<std::pair<Collective, Algorithm>> by_messages() {
  std::vector<std::pair<Collective, Algorithm>> found;
  for (Collective const collective :
       {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter}) {
    for (Algorithm const algorithm : algorithms_of(collective)) {
      if (find_algorithm(collective, algorithm).needs == MemoryNeed::nothing) found.emplace_back(collective, algorithm);
    }
  }
  return found;
}

Index receives(Schedule const& schedule) {
  Index result = 0;
  for (Round const& round : schedule.rounds) {
    result += std::ranges::count_if(round, [](Move const& move) { return move.action == Action::receive; });
  }
  return result;
}

} // namespace

TEST_CASE("binomial broadcast and reduce take ceil(lg N) rounds from and to every root", "[comm][algorithms]") {
  Index const s = 17;
  for (Rank ranks = 2; ranks <= 33; ++ranks) {
    Index const levels = ceil_lg(ranks);
    Index const others = ranks - 1;
    for (Rank root = 0; root < ranks; ++root) {
      INFO(ranks << " ranks, root " << root);
      auto const broadcast =
          counted(rooted(Collective::broadcast, Partition::even(s, ranks), root), Algorithm::binomial);
      check_row(broadcast, {levels, levels, levels * s, others * s, 0});
      CHECK(broadcast.total == in_all(others, others * s));
      auto const reduce = counted(rooted(Collective::reduce, Partition::even(s, ranks), root), Algorithm::binomial);
      check_row(reduce, {levels, 1, s, others * s, levels * s});
      CHECK(reduce.total == in_all(others, others * s, others * s));
    }
  }
}

TEST_CASE("rooted collectives are proved from and to every root", "[comm][algorithms]") {
  for (auto const& [collective, algorithm] : by_messages()) {
    for (Rank const ranks : {2, 3, 4, 5, 7, 8, 13, 24, 33}) {
      for (std::vector<Index> const& sizes : block_sizes_to_try(ranks)) {
        for (Rank root = 0; root < ranks; ++root) {
          INFO(to_string(collective) << " " << to_string(algorithm) << ", " << text_of(sizes) << ", root " << root);
          REQUIRE(defect_of(rooted(collective, Partition::of_sizes(sizes), root), algorithm) == "");
        }
      }
    }
  }
}

TEST_CASE("rooted collectives of no elements send nothing", "[comm][algorithms]") {
  for (auto const& [collective, algorithm] : by_messages()) {
    INFO(to_string(collective) << " " << to_string(algorithm));
    CHECK(counted(rooted(collective, Partition::even(0, 5), 3), algorithm) == CollectiveCounts{});
  }
}

TEST_CASE("the binomial reduce adds in the balanced tree, counted from the root", "[comm][algorithms]") {
  Problem const problem = rooted(Collective::reduce, Partition::even(3, 5), 3);
  auto const schedules = make_schedules(problem, Algorithm::binomial);
  CHECK(without_order(reduction_tree(problem, schedules, 3, 2)) == without_order("(((3+4)+(0+1))+2)"));
}

TEST_CASE("linear broadcast and reduce: one round, all of it from or to the root", "[comm][algorithms]") {
  Index const s = 17;
  for (Rank ranks = 2; ranks <= 33; ++ranks) {
    Index const others = ranks - 1;
    for (Rank root = 0; root < ranks; ++root) {
      INFO(ranks << " ranks, root " << root);
      auto const broadcast = counted(rooted(Collective::broadcast, Partition::even(s, ranks), root), Algorithm::linear);
      check_row(broadcast, {1, others, others * s, others * s, 0});
      CHECK(broadcast.total == in_all(others, others * s));
      for (Algorithm const algorithm : {Algorithm::linear, Algorithm::ordered}) {
        Problem const problem = rooted(Collective::reduce, Partition::even(s, ranks), root);
        auto const reduce = counted(problem, algorithm);
        check_row(reduce, {1, 1, s, others * s, others * s});
        CHECK(reduce.total == in_all(others, others * s, others * s));
        CHECK(receives(make_schedule(problem, algorithm, root)) == others);
        Index const copies = algorithm == Algorithm::ordered ? ranks : others; // of the data, in the root's scratch
        for (Rank rank = 0; rank < ranks; ++rank)
          CHECK(make_schedule(problem, algorithm, rank).scratch_elements == (rank == root ? copies * s : 0));
      }
    }
  }
}

TEST_CASE("the linear reduce adds in the order of the ranks, the ordered one in the balanced tree, whatever the root",
          "[comm][algorithms]") {
  std::string in_order = "0";
  for (Rank ranks = 2; ranks <= 17; ++ranks) {
    in_order = "(" + in_order + "+" + std::to_string(ranks - 1) + ")";
    for (Rank const root : some_roots(ranks)) {
      INFO(ranks << " ranks, root " << root);
      Problem const problem = rooted(Collective::reduce, Partition::even(3, ranks), root);
      auto const tree = [&](Algorithm algorithm) {
        return reduction_tree(problem, make_schedules(problem, algorithm), root, 2);
      };
      CHECK(without_order(tree(Algorithm::linear)) == without_order(in_order));
      CHECK(tree(Algorithm::ordered) == balanced_tree(ranks));
    }
  }
}

TEST_CASE("linear gather and scatter: one round, every block travels once", "[comm][algorithms]") {
  for_uneven_blocks([](std::vector<Index> const& sizes, Rank root) {
    auto const ranks = static_cast<Rank>(sizes.size());
    RankByRank gather(ranks), scatter(ranks);
    auto const at = static_cast<std::size_t>(root);
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
      if (rank == at) continue;
      gather.sends(rank, sizes[rank]);
      scatter.sends(at, sizes[rank]);
    }
    Index const rounds = gather.total().messages > 0 ? 1 : 0;
    Partition const partition = Partition::of_sizes(sizes);
    auto const gathered = counted(rooted(Collective::gather, partition, root), Algorithm::linear);
    auto const scattered = counted(rooted(Collective::scatter, partition, root), Algorithm::linear);
    check_traffic(gathered, gather);
    check_traffic(scattered, scatter);
    CHECK(gathered.rounds == rounds);
    CHECK(scattered.rounds == rounds);
  });
}

TEST_CASE("binomial gather and scatter: one message per edge, one hop per bit, whatever the root",
          "[comm][algorithms]") {
  for_uneven_blocks([](std::vector<Index> const& sizes, Rank root) {
    auto const ranks = static_cast<Rank>(sizes.size());
    std::vector<Index> const loads = edge_loads(sizes, root);
    RankByRank gather(ranks), scatter(ranks);
    for (std::size_t v = 1; v < loads.size(); ++v) {
      gather.sends(rank_at(v, root, loads.size()), loads[v]);
      scatter.sends(rank_at(v & (v - 1), root, loads.size()), loads[v]);
    }
    Partition const partition = Partition::of_sizes(sizes);
    auto const gathered = counted(rooted(Collective::gather, partition, root), Algorithm::binomial);
    auto const scattered = counted(rooted(Collective::scatter, partition, root), Algorithm::binomial);
    check_traffic(gathered, gather);
    check_traffic(scattered, scatter);
    CHECK(gathered.rounds == gathered_after(loads, 0));
    CHECK(scattered.rounds == scattered_after(loads, 0, 0));
  });
}

TEST_CASE("binomial gather and scatter on 2^k ranks: lg N rounds, S/2 to the root, S lg N / 2 in all",
          "[comm][algorithms]") {
  for (Rank const ranks : {2, 4, 8, 16, 32, 64}) {
    Index const levels = floor_lg(ranks);
    Index const s = Index{3} * ranks;
    for (Rank root = 0; root < ranks; ++root) {
      INFO(ranks << " ranks, root " << root);
      check_row(counted(rooted(Collective::gather, Partition::even(s, ranks), root), Algorithm::binomial),
                {levels, 1, s / 2, s * levels / 2, 0});
      check_row(counted(rooted(Collective::scatter, Partition::even(s, ranks), root), Algorithm::binomial),
                {levels, levels, s * (ranks - 1) / ranks, s * levels / 2, 0});
    }
  }
}

TEST_CASE("a gather's root receives N-1 messages, on the tree ceil(lg N)", "[comm][algorithms]") {
  for (Rank ranks = 1; ranks <= 33; ++ranks) {
    for (Rank root = 0; root < ranks; ++root) {
      Problem const problem = rooted(Collective::gather, Partition::even(40, ranks), root);
      CHECK(receives(make_schedule(problem, Algorithm::linear, root)) == ranks - 1);
      CHECK(receives(make_schedule(problem, Algorithm::binomial, root)) == ceil_lg(ranks));
    }
  }
}

TEST_CASE("binomial gather and scatter need scratch only for the subtrees that go round the end",
          "[comm][algorithms]") {
  for (Collective const collective : {Collective::gather, Collective::scatter}) {
    for (Schedule const& schedule :
         make_schedules(rooted(collective, Partition::even(26, 13), 0), Algorithm::binomial)) {
      CHECK(schedule.scratch_elements == 0);
    }
    // positions 8 ... 12 are ranks 11, 12, 0, 1, 2: rank 11 keeps them together, its subtree 12, 13 (ranks 2, 3) not
    Problem const problem = rooted(collective, Partition::even(26, 13), 3);
    for (Schedule const& schedule : make_schedules(problem, Algorithm::binomial)) {
      bool const packs = schedule.rank == 3 || schedule.rank == 11;
      CHECK(schedule.scratch_elements == (packs ? 5 * 2 : 0));
    }
  }
}

TEST_CASE("broadcast by scatter and all-gather sends 2 S (N-1)/N and S lg N / 2 + (N-1) S in all on 2^k ranks",
          "[comm][algorithms]") {
  for (Rank const ranks : {2, 4, 8, 16, 32}) {
    Index const levels = floor_lg(ranks);
    Index const s = Index{5} * ranks;
    Index const others = ranks - 1;
    for (Rank root = 0; root < ranks; ++root) {
      INFO(ranks << " ranks, root " << root);
      check_row(counted(rooted(Collective::broadcast, Partition::even(s, ranks), root), Algorithm::scatter_all_gather),
                {levels + others, levels + others, 2 * s * others / ranks, s * levels / 2 + others * s, 0});
    }
  }
}

TEST_CASE("broadcast by scatter and all-gather: exact sums on any number of ranks and blocks", "[comm][algorithms]") {
  for_uneven_blocks([](std::vector<Index> const& sizes, Rank root) {
    std::size_t const n = sizes.size();
    RankByRank expected(static_cast<Rank>(n));
    std::vector<Index> const loads = edge_loads(sizes, root);
    for (std::size_t v = 1; v < n; ++v) expected.sends(rank_at(v & (v - 1), root, n), loads[v]);
    for (std::size_t rank = 0; rank < n; ++rank) { // in the all-gather all blocks but the right-hand neighbour's
      for (std::size_t step = 2; step <= n; ++step) expected.sends(rank, sizes[(rank + step) % n]);
    }
    auto const counts =
        counted(rooted(Collective::broadcast, Partition::of_sizes(sizes), root), Algorithm::scatter_all_gather);
    check_traffic(counts, expected);
    Index const rounds = ceil_lg(static_cast<Rank>(n)) + static_cast<Index>(n) - 1;
    CHECK(counts.rounds <= rounds); // where blocks are empty, the chain of messages has holes
    if (no_empty_block(sizes)) CHECK(counts.rounds == rounds);
  });
}
