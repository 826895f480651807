#include "core/error.hpp"
#include "parallel/program/step_timeline.hpp"

#include <map>
#include <set>

namespace trainstone {

namespace {

std::size_t at(Rank rank) { return static_cast<std::size_t>(rank); }

} // namespace

std::vector<RankClass> rank_classes(Mesh const& mesh, std::vector<Index> const& keys) {
  TRAINSTONE_REQUIRE(std::ssize(keys) == mesh.ranks(), "{} keys for {} ranks", keys.size(), mesh.ranks());
  std::vector<RankClass> classes;
  std::map<Index, std::size_t> numbers;
  for (Rank rank = 0; rank < mesh.ranks(); ++rank) {
    auto const [found, is_new] = numbers.try_emplace(keys[at(rank)], classes.size());
    Rank const stage = mesh.index(Axis::pipeline, rank);
    Rank const program = mesh.serves(rank) ? mesh.pipeline : stage;
    if (is_new) classes.push_back({.first = rank, .ranks = 0, .stage = stage, .program = program, .lines = {}});
    RankClass& one = classes[found->second];
    ++one.ranks;
    TRAINSTONE_REQUIRE(one.stage == stage, "ranks {} and {} of one class are on stages {} and {}", one.first, rank,
                       one.stage, stage);
  }
  for (RankClass& one : classes)
    for (Axis const axis : axes) {
      std::set<std::size_t> met;
      for (Rank const member : mesh.members(axis, one.first)) met.insert(numbers.at(keys[at(member)]));
      one.lines[static_cast<std::size_t>(axis)] = {met.begin(), met.end()};
    }
  for (RankClass const& one : classes)
    for (std::size_t axis = 0; axis < axes.size(); ++axis)
      for (std::size_t const other : one.lines[axis])
        TRAINSTONE_REQUIRE(classes[other].lines[axis] == one.lines[axis],
                           "ranks {} and {} are on one line, but their classes meet others there", one.first,
                           classes[other].first);
  return classes;
}

} // namespace trainstone
