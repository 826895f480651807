#pragma once

// What tests of closed forms share: the ranks and blocks to try, the columns of a count added up from what a test says
// that each rank does, and reduction trees up to the order of operands. Knows no algorithm.

#include "comm/algorithms/registry.hpp"
#include "comm/simulation/simulator.hpp"
#include "support/traffic.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainstone::test {

inline constexpr std::size_t bytes_of_float = 4;

/// 1 ... 17, and some above: powers of two, odd and prime numbers.
inline std::vector<Rank> ranks_to_try() {
  std::vector<Rank> ranks;
  for (Rank n = 1; n <= 17; ++n) ranks.push_back(n);
  ranks.insert(ranks.end(), {23, 32, 33, 48, 64, 100});
  return ranks;
}

/// floor(lg n) and ceil(lg n).
inline Rank floor_lg(Rank n) { return std::bit_width(static_cast<unsigned>(n)) - 1; }
inline Rank ceil_lg(Rank n) { return n == 1 ? 0 : floor_lg(n - 1) + 1; }

/// Block sizes that no formula with S/N describes; the first two have no empty block.
inline std::vector<std::vector<Index>> uneven_block_sizes(Rank ranks) {
  auto const n = static_cast<std::size_t>(ranks);
  std::vector<Index> indivisible(n, 58), growing, with_empty_blocks, last_only(n, 0), first_only(n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    if (i < 3) ++indivisible[i];
    growing.push_back(static_cast<Index>(3 * i + 1));
    with_empty_blocks.push_back(i % 3 == 1 ? 0 : static_cast<Index>(i + 2));
  }
  last_only.back() = 11;
  first_only.front() = 1;
  return {indivisible, growing, with_empty_blocks, last_only, first_only, std::vector<Index>(n, 0)};
}

inline bool no_empty_block(std::vector<Index> const& sizes) { return std::ranges::min(sizes) > 0; }

/// The sum of sizes first ... last-1, counted modulo their number.
inline Index sum_of(std::vector<Index> const& sizes, std::size_t first, std::size_t last) {
  Index sum = 0;
  for (std::size_t i = first; i < last; ++i) sum += sizes[i % sizes.size()];
  return sum;
}

/// Messages and additions of all ranks, told one by one.
class RankByRank {
public:
  explicit RankByRank(Rank ranks) : m_ranks(static_cast<std::size_t>(ranks)) {}

  /// Nothing is sent if there are no elements.
  void sends(std::size_t rank, Index elements) {
    if (elements == 0) return;
    m_ranks[rank].messages += 1;
    m_ranks[rank].bytes += static_cast<std::uint64_t>(elements) * bytes_of_float;
  }
  void adds(std::size_t rank, Index elements) { m_ranks[rank].reduced += static_cast<std::uint64_t>(elements); }

  Traffic busiest() const {
    Traffic most;
    for (Traffic const& rank : m_ranks) {
      most.messages = std::max(most.messages, rank.messages);
      most.bytes = std::max(most.bytes, rank.bytes);
      most.reduced = std::max(most.reduced, rank.reduced);
    }
    return most;
  }
  Traffic total() const {
    Traffic sum;
    for (Traffic const& rank : m_ranks) sum += rank;
    return sum;
  }

private:
  std::vector<Traffic> m_ranks;
};

inline CollectiveCounts counted(Problem const& problem, Algorithm algorithm) {
  return count(problem, make_schedules(problem, algorithm), bytes_of_float);
}

inline CollectiveCounts counted(Collective collective, Algorithm algorithm, Partition const& partition) {
  return counted(Problem::on_one_node(collective, partition), algorithm);
}

/// One row of the table of formulas, in elements: of the busiest rank, and sent by all.
struct Row {
  Index rounds;
  Index messages;
  Index sent;
  Index total;
  Index reduced;
};

inline std::uint64_t in_bytes(Index elements) { return static_cast<std::uint64_t>(elements) * bytes_of_float; }

inline void check_row(CollectiveCounts const& counts, Row const& row) {
  CHECK(counts.rounds == row.rounds);
  CHECK(counts.busiest.messages == static_cast<std::uint64_t>(row.messages));
  CHECK(counts.busiest.bytes == in_bytes(row.sent));
  CHECK(counts.total.bytes == in_bytes(row.total));
  CHECK(counts.busiest.reduced == static_cast<std::uint64_t>(row.reduced));
}

/// All but rounds, which may be fewer where blocks are empty.
inline void check_traffic(CollectiveCounts const& counts, RankByRank const& expected) {
  CHECK(counts.busiest == expected.busiest());
  CHECK(counts.total == expected.total());
}

/// The defect of an algorithm's own schedules, empty if there is none.
inline std::string defect_of(Problem const& problem, Algorithm algorithm) {
  auto const finding = find_defect(problem, make_schedules(problem, algorithm));
  return finding ? finding->message : "";
}

/// A reduction tree with the operands of every sum in alphabetical order: equal texts are equal bits, since a + b is
/// b + a.
inline std::string without_order(std::string_view tree) {
  if (tree.empty() || tree.front() != '(') return std::string(tree);
  int depth = 0;
  std::size_t middle = 0;
  for (std::size_t i = 0; i < tree.size() && middle == 0; ++i) {
    depth += tree[i] == '(' ? 1 : tree[i] == ')' ? -1 : 0;
    if (tree[i] == '+' && depth == 1) middle = i;
  }
  std::string left = without_order(tree.substr(1, middle - 1));
  std::string right = without_order(tree.substr(middle + 1, tree.size() - middle - 2));
  if (right < left) std::swap(left, right);
  return "(" + left + "+" + right + ")";
}

/// The tree of one element on all ranks of an all-reduce, if it is the same on all; else the two that differ.
inline std::string common_tree(Problem const& problem, std::vector<Schedule> const& schedules, Index element) {
  std::string const first = without_order(reduction_tree(problem, schedules, 0, element));
  for (Rank rank = 1; rank < problem.ranks(); ++rank) {
    std::string const other = without_order(reduction_tree(problem, schedules, rank, element));
    if (other != first) return first + " but " + other;
  }
  return first;
}

inline std::string common_tree(Problem const& problem, Algorithm algorithm, Index element) {
  return common_tree(problem, make_schedules(problem, algorithm), element);
}

} // namespace trainstone::test
