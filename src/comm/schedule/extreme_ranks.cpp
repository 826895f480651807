#include "comm/schedule/extreme_ranks.hpp"

#include <bit>
#include <set>

namespace trainstone {

namespace {

/// The ends of 0 ... n-1, its middle, and where folding to a power of two and trees change.
void add_places(std::set<Rank>& places, Rank n) {
  auto const power = static_cast<Rank>(std::bit_floor(static_cast<std::uint32_t>(n)));
  Rank const folded = n - power; // pairs of ranks that are folded into one
  for (Rank const border : {Rank{0}, n, power, power / 2, folded, 2 * folded, n / 2})
    for (Rank const place : {border - 1, border, border + 1})
      if (place >= 0 && place < n) places.insert(place);
}

} // namespace

std::vector<Rank> extreme_ranks(Topology const& topology) {
  std::set<Rank> ranks;
  add_places(ranks, topology.ranks());
  // the same in the first, the last and the largest nodes, of leaders and others
  std::set<Rank> nodes;
  add_places(nodes, topology.nodes());
  for (Rank const node : nodes) {
    std::set<Rank> places;
    std::vector<Rank> const& members = topology.members(node);
    add_places(places, static_cast<Rank>(members.size()));
    for (Rank const place : places) ranks.insert(members[static_cast<std::size_t>(place)]);
  }
  return {ranks.begin(), ranks.end()};
}

} // namespace trainstone
