#pragma once

// What the simulator holds instead of numbers: for every element of a buffer, which element of the data it is and
// how often each rank has contributed to it. Equal neighbours form one piece, so the cost does not depend on sizes.

#include "comm/partition.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace trainstone::Impl {

/// Consecutive elements with the same contributions.
struct Piece {
  Index size = 0;
  Index element = 0;                                               ///< which element of the data the first one is
  std::shared_ptr<std::vector<std::uint32_t> const> contributions; ///< per rank; null: undefined

  bool defined() const { return contributions != nullptr; }
};

/// The sum of two runs of equal length, undefined where one of them is or where different elements would be added.
std::vector<Piece> sum(std::vector<Piece> const& a, std::vector<Piece> const& b);

class SymbolicBuffer {
public:
  /// `elements` undefined elements.
  static SymbolicBuffer undefined(Index elements) { return SymbolicBuffer({elements, 0, nullptr}); }
  /// All elements, in their places, contributed by one rank of `ranks`.
  static SymbolicBuffer contribution_of(Rank rank, Rank ranks, Index elements);

  std::vector<Piece> read(Range const& range);
  void write(Range const& range, std::vector<Piece> const& pieces);
  std::vector<Piece> const& pieces() const { return m_pieces; }

private:
  explicit SymbolicBuffer(Piece const& whole) : m_pieces{whole} {}
  std::size_t cut(Index position);

  std::vector<Piece> m_pieces;
};

} // namespace trainstone::Impl
