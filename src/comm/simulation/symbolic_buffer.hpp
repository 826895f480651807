#pragma once

// What the simulator holds instead of numbers: for every element of a buffer, which element of whose data it is and
// which contributions were added up in which order. Equal neighbours form one piece, so the cost does not depend on
// sizes. For the simulator alone.

#include "comm/simulation/sum_trees.hpp"

#include <vector>

namespace trainstone::Impl {

/// Consecutive elements with the same contributions.
struct Piece {
  Index size = 0;
  Index element = 0; ///< which element of the data the first one is
  Sum sum = undefined_sum;

  bool defined() const { return sum != undefined_sum; }
};

/// Elements of a buffer, piece after piece.
using Pieces = std::vector<Piece>;

bool all_defined(Pieces const& pieces);

/// The sum of two runs of equal length, undefined where one of them is or where different elements would be added.
Pieces sum(SumTrees& trees, Pieces const& a, Pieces const& b);

/// The same of any number of runs, in the balanced tree over their numbers (see Move).
Pieces balanced_sum(SumTrees& trees, std::vector<Pieces> parts);

class SymbolicBuffer {
public:
  /// `elements` undefined elements.
  explicit SymbolicBuffer(Index elements);

  /// What lies in a range, which must be inside the buffer.
  Pieces read(Range const& range) const;
  /// Puts pieces of the range's length there.
  void write(Range const& range, Pieces const& pieces);

private:
  struct Run { // up to the next one's begin
    Index begin;
    Index element;
    Sum sum;
    bool continues(Run const& before) const;
  };
  std::size_t find(Index position) const;
  std::size_t cut(Index position);

  std::vector<Run> m_runs; // the last one begins at the end of the buffer and holds nothing
};

} // namespace trainstone::Impl
