#include "comm/algorithms/binomial_tree.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace trainstone {

BinomialPlace binomial_place(Rank position, Rank size) {
  TRAINSTONE_REQUIRE(position >= 0 && position < size, "no position {} in a tree of {}", position, size);
  Rank const lowest_bit = position & -position;
  BinomialPlace place{.position = position, .end = size, .parent = {}, .children = {}};
  if (position > 0) {
    place.parent = position - lowest_bit;
    place.end = position + std::min(lowest_bit, size - position);
  }
  for (Rank distance = 1; distance < place.end - position; distance *= 2) place.children.push_back(position + distance);
  return place;
}

std::vector<BinomialSubtree> binomial_subtrees(BinomialPlace const& place) {
  std::vector<BinomialSubtree> subtrees;
  for (std::size_t i = 0; i < place.children.size(); ++i) {
    Rank const end = i + 1 < place.children.size() ? place.children[i + 1] : place.end;
    subtrees.push_back({place.children[i], end});
  }
  return subtrees;
}

} // namespace trainstone
