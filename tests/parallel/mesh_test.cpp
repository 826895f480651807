// The mesh against loops that count ranks one by one.

#include "parallel/plan/mesh.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <map>
#include <set>

using namespace trainstone;

namespace {

constexpr Mesh mesh{.tensor = 2, .features = 3, .shard = 3, .replica = 4, .pipeline = 5};

using Indices = std::map<Axis, Rank>;

/// By rank, in the order in which ranks are dealt out: the innermost loop goes through neighbours.
std::vector<Indices> counted_indices() {
  std::vector<Indices> ranks;
  for (Rank stage = 0; stage < 5; ++stage)
    for (Rank replica = 0; replica < 4; ++replica)
      for (Rank member = 0; member < 3; ++member)
        for (Rank part = 0; part < 3; ++part)
          for (Rank tensor = 0; tensor < 2; ++tensor)
            ranks.push_back({{Axis::tensor, tensor},
                             {Axis::features, part},
                             {Axis::shard, member},
                             {Axis::replica, replica},
                             {Axis::pipeline, stage}});
  return ranks;
}

/// The ranks whose indices are those of `rank` but for this axis.
std::vector<Rank> counted_line(std::vector<Indices> const& ranks, Axis axis, std::size_t rank) {
  std::vector<Rank> line;
  for (std::size_t other = 0; other < ranks.size(); ++other) {
    Indices moved = ranks[other];
    moved[axis] = ranks[rank].at(axis);
    if (moved == ranks[rank]) line.push_back(static_cast<Rank>(other));
  }
  return line;
}

} // namespace

TEST_CASE("a mesh with five axes numbers its ranks as nested loops do, tensor ranks as neighbours",
          "[parallel][mesh]") {
  std::vector<Indices> const counted = counted_indices();
  REQUIRE(mesh.ranks() == 360);
  REQUIRE(std::ssize(counted) == mesh.ranks());
  CHECK(mesh.members(Axis::tensor, 0) == std::vector<Rank>{0, 1});
  CHECK(mesh.members(Axis::features, 1) == std::vector<Rank>{1, 3, 5});
  CHECK(mesh.members(Axis::shard, 1) == std::vector<Rank>{1, 7, 13});
  CHECK(mesh.members(Axis::replica, 359) == std::vector<Rank>{305, 323, 341, 359});
  CHECK(mesh.members(Axis::pipeline, 7) == std::vector<Rank>{7, 79, 151, 223, 295});
  for (std::size_t number = 0; number < counted.size(); ++number) {
    auto const rank = static_cast<Rank>(number);
    INFO("rank " << rank);
    for (Axis const axis : axes) {
      INFO("axis " << static_cast<int>(axis));
      std::vector<Rank> const line = counted_line(counted, axis, number);
      Rank const index = counted[number].at(axis);
      CHECK(mesh.index(axis, rank) == index);
      CHECK(mesh.size(axis) == std::ssize(line));
      CHECK(mesh.members(axis, rank) == line);
      CHECK(line[static_cast<std::size_t>(index)] == rank);
      for (Rank there = 0; there < mesh.size(axis); ++there)
        CHECK(mesh.rank_at(axis, rank, there) == line[static_cast<std::size_t>(there)]);
    }
  }
}

TEST_CASE("the lines of an axis partition the ranks, and each has a colour of its own", "[parallel][mesh]") {
  for (Axis const axis : axes) {
    INFO("axis " << static_cast<int>(axis));
    std::map<int, std::set<Rank>> by_colour;
    for (Rank rank = 0; rank < mesh.ranks(); ++rank) {
      int const colour = mesh.colour(axis, rank);
      CHECK(colour >= 0); // as Communicator::split() asks
      by_colour[colour].insert(rank);
    }
    CHECK(std::ssize(by_colour) * mesh.size(axis) == mesh.ranks());
    for (auto const& [colour, ranks] : by_colour)
      for (Rank const rank : ranks) CHECK(mesh.members(axis, rank) == std::vector<Rank>(ranks.begin(), ranks.end()));
  }
}

TEST_CASE("the data ranks are those of the shard and the replica axis", "[parallel][mesh]") {
  std::vector<Indices> const counted = counted_indices();
  CHECK(mesh.data() == 12);
  std::map<Rank, int> ranks_of_data;
  for (std::size_t rank = 0; rank < counted.size(); ++rank) {
    Rank const data = mesh.data_index(static_cast<Rank>(rank));
    CHECK(data == counted[rank].at(Axis::shard) + 3 * counted[rank].at(Axis::replica));
    ++ranks_of_data[data];
  }
  CHECK(std::ssize(ranks_of_data) == mesh.data());
  for (auto const& [data, ranks] : ranks_of_data) CHECK(ranks == 2 * 3 * 5);
  constexpr Mesh of_data{.shard = 3, .replica = 4};
  for (Rank rank = 0; rank < of_data.ranks(); ++rank) CHECK(of_data.data_index(rank) == rank);
}

TEST_CASE("an axis has length 1 if nothing else is said", "[parallel][mesh]") {
  Mesh const alone;
  CHECK(alone.ranks() == 1);
  CHECK(alone.data() == 1);
  for (Axis const axis : axes) CHECK(alone.members(axis, 0) == std::vector<Rank>{0});
}

TEST_CASE("a strategy has a mesh of all ranks", "[parallel][mesh]") {
  auto const sizes = [](ParallelConfig const& parallel, Index ranks) {
    Mesh const found = mesh_of(parallel, ranks);
    CHECK(found.ranks() == ranks);
    CHECK(found.data() == ranks);
    return std::vector<Rank>{found.shard, found.replica};
  };
  CHECK(sizes({}, 6) == std::vector<Rank>{1, 6});
  CHECK(sizes({.strategy = Strategy::naive}, 6) == std::vector<Rank>{1, 6});
  CHECK(sizes({.strategy = Strategy::naive, .naive_update = NaiveUpdate::main}, 6) == std::vector<Rank>{6, 1});
  CHECK(sizes({.strategy = Strategy::zero, .zero_stage = 1}, 6) == std::vector<Rank>{6, 1});
  CHECK(sizes({.strategy = Strategy::hsdp, .shard_group = 3}, 6) == std::vector<Rank>{3, 2});
  sizes({.strategy = Strategy::hsdp}, 6); // the batch is judged before the shard group
  sizes({.strategy = Strategy::hsdp, .shard_group = 4}, 6);
  sizes({.strategy = Strategy::hsdp, .shard_group = -1}, 6);
}
