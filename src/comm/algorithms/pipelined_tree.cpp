#include "comm/algorithms/pipelined_tree.hpp"

#include "comm/schedule/schedule_builder.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <limits>
#include <optional>

namespace trainstone {

namespace {

/// A position in the binary tree over 0 ... size-1: a subtree's root is its first position, its children halve the
/// rest.
struct BinaryPlace {
  Rank depth = 0;  ///< of this position; the root's is 0
  Rank height = 0; ///< depth of the deepest position
  std::optional<Rank> parent;
  std::vector<Rank> children;
};

BinaryPlace binary_place(Rank position, Rank size) {
  BinaryPlace place;
  for (Rank rest = size / 2; rest > 0; rest /= 2) ++place.height; // the larger half of n-1 is n/2
  Rank root = 0, end = size;
  while (root != position) {
    Rank const middle = root + 1 + (end - root) / 2;
    place.parent = root;
    ++place.depth;
    if (position < middle) {
      root = root + 1;
      end = middle;
    } else {
      root = middle;
    }
  }
  Rank const middle = root + 1 + (end - root) / 2;
  if (end - root > 1) place.children.push_back(root + 1);
  if (middle < end) place.children.push_back(middle);
  return place;
}

Partition make_segments(Problem const& problem) {
  Index const longest = problem.longest_segment();
  Index const count = std::max<Index>(problem.elements() / longest + (problem.elements() % longest > 0 ? 1 : 0), 1);
  TRAINSTONE_REQUIRE_INPUT(count < std::numeric_limits<Rank>::max(),
                           "pipelined_tree: {} elements in segments of {} are {} segments; fewer than {} are possible",
                           problem.elements(), longest, count, std::numeric_limits<Rank>::max());
  return Partition::even(problem.elements(), static_cast<Rank>(count));
}

} // namespace

// All ranks follow one clock, so that both ends of a message agree when it travels, and nothing waits in a circle.
// Segment s leaves depth d for its parent at step s + 2 (height - d): a step after it was added, two after it came. The
// root sends it back at step s + 2 height, and it gets one depth further with each step.
Schedule make_pipelined_tree_all_reduce(Problem const& problem, Rank rank) {
  ScheduleBuilder builder(problem, Algorithm::pipelined_tree, rank);
  std::vector<Rank> const& ring = problem.topology.ring();
  auto const rank_at = [&](Rank position) { return ring[static_cast<std::size_t>(position)]; };
  BinaryPlace const place = binary_place(problem.topology.ring_position(rank), problem.ranks());

  Partition const segments = make_segments(problem);
  auto const segment = [&](Index s) {
    bool const exists = s >= 0 && s < segments.ranks();
    return data_slice(exists ? segments.range(static_cast<Rank>(s)) : Range{});
  };
  std::vector<Range> received; // two per child: one is filled while the other is added
  for (std::size_t i = 0; i < 2 * place.children.size(); ++i)
    received.push_back(builder.new_scratch(segments.largest()));
  auto const slot = [&](std::size_t child, Index s) {
    Index const begin = received.empty() ? 0 : received[2 * child + static_cast<std::size_t>(s & 1)].begin;
    return scratch_slice({begin, begin + segment(s).range.size()});
  };

  Index const last_step = segments.ranks() - 1 + 3 * place.height - 1;
  for (Index step = 0; step <= last_step; ++step) {
    Index const leaving = step - 2 * (place.height - place.depth);
    Index const coming_down = step - 2 * place.height - place.depth + 1;
    for (std::size_t i = 0; i < place.children.size(); ++i) {
      builder.reduce(slot(i, leaving + 1), segment(leaving + 1));
    }
    for (std::size_t i = 0; i < place.children.size(); ++i) {
      builder.receive(rank_at(place.children[i]), slot(i, leaving + 2));
      builder.send(rank_at(place.children[i]), segment(coming_down - 1));
    }
    if (place.parent) {
      builder.send(rank_at(*place.parent), segment(leaving));
      builder.receive(rank_at(*place.parent), segment(coming_down));
    }
    builder.end_round();
  }
  return builder.finish();
}

} // namespace trainstone
