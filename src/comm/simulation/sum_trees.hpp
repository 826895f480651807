#pragma once

// Which contributions an element holds, and in which order they were added: binary trees over ranks, shared between all
// elements and ranks of a simulation. Owns the trees; hands out their numbers. Promises: equal numbers mean equal bits,
// since a + b and b + a are one tree. For the simulator alone.

#include "comm/schedule/partition.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace trainstone::Impl {

/// A tree's number; of a single contribution: the rank.
using Sum = std::int64_t;
inline constexpr Sum undefined_sum = -1;

class SumTrees {
public:
  explicit SumTrees(Rank ranks) : m_ranks(ranks) {}

  /// The tree a + b, whose text names the side with the lowest rank first.
  Sum add(Sum a, Sum b);
  /// How often each rank is contained.
  std::vector<std::uint64_t> contributions(Sum sum) const;
  /// "((0+1)+2)"
  std::string text(Sum sum) const;

private:
  struct Node {
    Sum left;
    Sum right;
    Rank lowest;
  };
  struct Pair {
    Sum a;
    Sum b;
    bool operator==(Pair const&) const = default;
  };
  struct PairHash {
    std::size_t operator()(Pair const& pair) const {
      return static_cast<std::size_t>(pair.a) * 0x9e3779b97f4a7c15u + static_cast<std::size_t>(pair.b);
    }
  };

  bool is_rank(Sum sum) const { return sum < m_ranks; }
  Node const& node(Sum sum) const { return m_nodes[static_cast<std::size_t>(sum - m_ranks)]; }
  Rank lowest(Sum sum) const { return is_rank(sum) ? static_cast<Rank>(sum) : node(sum).lowest; }

  Rank m_ranks;
  std::vector<Node> m_nodes; // children come before their parents
  std::unordered_map<Pair, Sum, PairHash> m_numbers;
};

} // namespace trainstone::Impl
