// The closed forms of butterfly, Rabenseifner's and the recursive algorithms, and of their folding: P is the largest
// power of two, e = N - P ranks send all they have to a partner first and get the result last.

#include "comm/algorithms/closed_forms.hpp"

#include <algorithm>

using namespace trainstone;
using namespace trainstone::test;

namespace {

struct Fold {
  explicit Fold(Rank ranks) : levels(floor_lg(ranks)), core(Rank{1} << levels), excess(ranks - core) {}
  Rank levels;
  Rank core;
  Rank excess;
};

/// Even blocks of a core, from the definition of Partition::even.
std::vector<Index> even_sizes(Index elements, Rank blocks) {
  std::vector<Index> sizes(static_cast<std::size_t>(blocks), elements / blocks);
  for (std::size_t i = 0; i < static_cast<std::size_t>(elements % blocks); ++i) ++sizes[i];
  return sizes;
}

/// Of the member with block `place`: it keeps the aligned runs of 1, 2, 4, ... blocks around it, and sends those of
/// its partners.
void tell_halving(RankByRank& expected, std::size_t rank, std::vector<Index> const& sizes, std::size_t place) {
  for (std::size_t run = 1; run < sizes.size(); run *= 2) {
    std::size_t const kept = place / run * run;
    std::size_t const sent = (place / run % 2 == 0) ? kept + run : kept - run;
    expected.sends(rank, sum_of(sizes, sent, sent + run));
    expected.adds(rank, sum_of(sizes, kept, kept + run));
  }
}

void tell_doubling(RankByRank& expected, std::size_t rank, std::vector<Index> const& sizes, std::size_t place) {
  for (std::size_t run = 1; run < sizes.size(); run *= 2) {
    std::size_t const held = place / run * run;
    expected.sends(rank, sum_of(sizes, held, held + run));
  }
}

/// Rank 2i is core member i for i < e, rank e + i for the others.
std::size_t rank_of(std::size_t member, Fold const& fold) {
  auto const excess = static_cast<std::size_t>(fold.excess);
  return member < excess ? 2 * member : member + excess;
}

std::size_t bit_reversed(std::size_t number, Rank bits) {
  std::size_t result = 0;
  for (Rank bit = 0; bit < bits; ++bit) result |= (number >> bit & 1u) << (bits - 1 - bit);
  return result;
}

Problem all_reduce(Partition const& partition) { return Problem::on_one_node(Collective::all_reduce, partition); }

} // namespace

TEST_CASE("counts of butterfly and Rabenseifner equal the closed forms, folded ones too", "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    INFO(n << " ranks");
    auto const [k, p, e] = Fold(n);
    Index const s = Index{3} * p * n;
    Index const fold = e > 0 ? 1 : 0;
    Index const most = s / p * (p - 1);
    check_row(counted(all_reduce(Partition::even(s, n)), Algorithm::butterfly),
              {k + 2 * fold, k + fold, (k + fold) * s, p * k * s + 2 * e * s, (k + fold) * s});
    check_row(counted(all_reduce(Partition::even(s, n)), Algorithm::rabenseifner),
              {2 * k + 2 * fold, 2 * k + fold, 2 * most + fold * s, 2 * (n - 1) * s, most + fold * s});
  }
}

TEST_CASE("butterfly sends whole buffers whatever the partition", "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    auto const [k, p, e] = Fold(n);
    for (std::vector<Index> const& sizes : uneven_block_sizes(n)) {
      Partition const partition = Partition::of_sizes(sizes);
      INFO(n << " ranks, first block " << sizes.front() << ", last block " << sizes.back());
      Index const s = partition.elements();
      Index const sends = s > 0 ? k + (e > 0 ? 1 : 0) : 0;
      CollectiveCounts const counts = counted(all_reduce(partition), Algorithm::butterfly);
      CHECK(counts.busiest.messages == static_cast<std::uint64_t>(sends));
      CHECK(counts.busiest.bytes == in_bytes(sends * s));
      CHECK(counts.busiest.reduced == static_cast<std::uint64_t>(sends * s));
      CHECK(counts.total.messages == static_cast<std::uint64_t>(s > 0 ? p * k + 2 * e : 0));
      CHECK(counts.total.bytes == in_bytes((p * k + 2 * e) * s));
      CHECK(counts.total.reduced == static_cast<std::uint64_t>((p * k + e) * s));
    }
  }
}

TEST_CASE("Rabenseifner sends the exact sums of block sizes, even ones where ranks fold", "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    Fold const fold(n);
    for (std::vector<Index> const& sizes : uneven_block_sizes(n)) {
      Partition const partition = Partition::of_sizes(sizes);
      INFO(n << " ranks, first block " << sizes.front() << ", last block " << sizes.back());
      Index const s = partition.elements();
      std::vector<Index> const blocks = fold.excess == 0 ? sizes : even_sizes(s, fold.core);
      RankByRank expected(n);
      for (std::size_t member = 0; member < blocks.size(); ++member) {
        std::size_t const place = bit_reversed(member, fold.levels); // nearest ranks exchange the largest halves
        tell_halving(expected, rank_of(member, fold), blocks, place);
        tell_doubling(expected, rank_of(member, fold), blocks, place);
      }
      for (std::size_t pair = 0; pair < static_cast<std::size_t>(fold.excess); ++pair) {
        expected.sends(2 * pair + 1, s);
        expected.adds(2 * pair, s);
        expected.sends(2 * pair, s);
      }
      CollectiveCounts const counts = counted(all_reduce(partition), Algorithm::rabenseifner);
      check_traffic(counts, expected);
      CHECK(counts.total.bytes == in_bytes(2 * (n - 1) * s));
    }
  }
}

TEST_CASE("recursive halving and doubling are optimal on powers of two; folding adds eS/N in all",
          "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    INFO(n << " ranks");
    auto const [k, p, e] = Fold(n);
    Index const s = Index{12} * n;
    Partition const even = Partition::even(s, n);
    CollectiveCounts const halving = counted(Collective::reduce_scatter, Algorithm::recursive, even);
    CollectiveCounts const doubling = counted(Collective::all_gather, Algorithm::recursive, even);
    if (e == 0) {
      Index const most = s / n * (n - 1);
      check_row(halving, {k, k, most, (n - 1) * s, most});
      check_row(doubling, {k, k, most, (n - 1) * s, 0});
    } else {
      CHECK(halving.rounds == k + 2);
      CHECK(doubling.rounds == k + 2);
      CHECK(halving.busiest.messages == static_cast<std::uint64_t>(k + 1));
      CHECK(doubling.busiest.messages == static_cast<std::uint64_t>(k + 1));
      CHECK(halving.total.bytes == in_bytes((n - 1) * s + e * s / n));
      CHECK(doubling.total.bytes == in_bytes((n - 1) * s + e * s / n));
    }
  }
}

TEST_CASE("recursive halving and doubling send the exact sums of merged blocks", "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    Fold const fold(n);
    for (std::vector<Index> const& sizes : uneven_block_sizes(n)) {
      Partition const partition = Partition::of_sizes(sizes);
      INFO(n << " ranks, first block " << sizes.front() << ", last block " << sizes.back());
      std::vector<Index> merged;
      for (std::size_t member = 0; member < static_cast<std::size_t>(fold.core); ++member) {
        merged.push_back(
            sum_of(sizes, rank_of(member, fold),
                   member + 1 < static_cast<std::size_t>(fold.core) ? rank_of(member + 1, fold) : sizes.size()));
      }
      RankByRank halving(n), doubling(n);
      for (std::size_t member = 0; member < merged.size(); ++member) {
        tell_halving(halving, rank_of(member, fold), merged, member);
        tell_doubling(doubling, rank_of(member, fold), merged, member);
      }
      for (std::size_t pair = 0; pair < static_cast<std::size_t>(fold.excess); ++pair) {
        halving.sends(2 * pair + 1, partition.elements());
        halving.adds(2 * pair, partition.elements());
        halving.sends(2 * pair, sizes[2 * pair + 1]);
        doubling.sends(2 * pair + 1, sizes[2 * pair + 1]);
        doubling.sends(2 * pair, partition.elements());
      }
      check_traffic(counted(Collective::reduce_scatter, Algorithm::recursive, partition), halving);
      check_traffic(counted(Collective::all_gather, Algorithm::recursive, partition), doubling);
    }
  }
}

TEST_CASE("butterfly and Rabenseifner add in the balanced tree on powers of two", "[comm][algorithms]") {
  for (Rank const n : {1, 2, 4, 8, 16}) {
    Problem const problem = all_reduce(Partition::even(2 * n + 1, n));
    for (Index element = 0; element <= 2 * n; ++element) {
      INFO(n << " ranks, element " << element);
      CHECK(common_tree(problem, Algorithm::butterfly, element) == without_order(balanced_tree(n)));
      CHECK(common_tree(problem, Algorithm::rabenseifner, element) == without_order(balanced_tree(n)));
    }
  }
}

TEST_CASE("folded sums are the balanced tree over the core, the pairs added first, on every rank",
          "[comm][algorithms]") {
  for (auto const& [n, tree] : {std::pair{3, "((0+1)+2)"},
                                {5, "(((0+1)+2)+(3+4))"},
                                {6, "(((0+1)+(2+3))+(4+5))"},
                                {7, "(((0+1)+(2+3))+((4+5)+6))"},
                                {11, "((((0+1)+(2+3))+((4+5)+6))+((7+8)+(9+10)))"}}) {
    for (Index element = 0; element < 13; ++element) {
      INFO(n << " ranks, element " << element);
      CHECK(common_tree(all_reduce(Partition::even(13, n)), Algorithm::butterfly, element) == without_order(tree));
      CHECK(common_tree(all_reduce(Partition::even(13, n)), Algorithm::rabenseifner, element) == without_order(tree));
    }
  }
}

TEST_CASE("Rabenseifner's largest messages stay on the node", "[comm][algorithms]") {
  Problem problem = all_reduce(Partition::even(16 * 5, 16));
  problem.topology = Topology::block(16, 4);
  CollectiveCounts const counts = counted(problem, Algorithm::rabenseifner);
  // halves and quarters inside a node of 4; eighths and sixteenths across, there and back
  CHECK(counts.total.inter_bytes == in_bytes(16 * 2 * (10 + 5)));
}
