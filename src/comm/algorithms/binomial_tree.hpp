#pragma once

// The shape of the binomial tree on which broadcast, reduce, gather and scatter run. Owns who is whose parent and which
// positions a subtree has; does not know moves or data. Any number of positions: the tree is cut off at the last one.
//
// Position 0 is the root. The parent of position p is p without its lowest bit, and a subtree is a run of neighbouring
// positions: 0 has the children 1, 2, 4, ..., position 4 the children 5 and 6, and so on.

#include "comm/schedule/partition.hpp"

#include <optional>
#include <vector>

namespace trainstone {

struct BinomialPlace {
  Rank position = 0;
  Rank end = 1;               ///< the subtree: position ... end-1
  std::optional<Rank> parent; ///< of all but the root
  std::vector<Rank> children; ///< ascending: that at position + 2^k is reached in step k
};

/// Where a child's subtree begins and ends.
struct BinomialSubtree {
  Rank begin;
  Rank end;
};

/// \throws Error unless 0 <= position < size
BinomialPlace binomial_place(Rank position, Rank size);

/// The subtrees of the children, in their order.
std::vector<BinomialSubtree> binomial_subtrees(BinomialPlace const& place);

} // namespace trainstone
