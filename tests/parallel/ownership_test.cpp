#include "parallel/plan/ownership.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace trainstone;

namespace {

/// Groups of the given padded sizes, one behind the other.
std::vector<ParameterGroup> groups_of(std::vector<Index> const& sizes) {
  std::vector<ParameterGroup> groups;
  Index offset = 0;
  for (Index const size : sizes) {
    groups.push_back({"group", offset, size, size, size});
    offset += size;
  }
  return groups;
}

/// Every group is a unit.
std::vector<ParameterUnit> units_of(std::vector<ParameterGroup> const& groups) {
  std::vector<ParameterUnit> units;
  for (Index g = 0; g < std::ssize(groups); ++g) {
    ParameterGroup const& group = groups[static_cast<std::size_t>(g)];
    units.push_back({"unit", g, g, group.offset, group.padded});
  }
  return units;
}

Ownership of_units(std::vector<Index> const& sizes, Rank members) {
  std::vector<ParameterGroup> const groups = groups_of(sizes);
  return Ownership::of_units(groups, units_of(groups), members);
}

std::vector<Rank> owners_of(Ownership const& ownership, std::size_t groups) {
  std::vector<Rank> owners;
  for (std::size_t g = 0; g < groups; ++g) owners.push_back(ownership.owner(static_cast<Index>(g)).value());
  return owners;
}

/// Every element of every group is one member's, and the shares of a member lie side by side, without gaps.
void check_complete(Ownership const& ownership, std::vector<Index> const& sizes, Rank members) {
  for (Rank member = 0; member < members; ++member) {
    Index next = 0;
    for (std::size_t g = 0; g < sizes.size(); ++g) {
      Range const share = ownership.share(static_cast<Index>(g), member);
      if (share.empty()) continue;
      CHECK(share.size() == ownership.share_elements(static_cast<Index>(g)));
      CHECK(ownership.offset(static_cast<Index>(g), member) == next);
      next += share.size();
    }
    CHECK(ownership.elements(member) == next);
  }
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    Index end = 0;
    for (Rank member = 0; member < members; ++member) {
      Range const share = ownership.share(static_cast<Index>(g), member);
      if (share.empty()) continue;
      CHECK(share.begin == end);
      end = share.end;
    }
    CHECK(end == sizes[g]);
  }
}

} // namespace

TEST_CASE("units go from the largest to the smallest to who has least, ties to the first", "[parallel][ownership]") {
  auto const owners = [](std::vector<Index> const& sizes, Rank members) {
    return owners_of(of_units(sizes, members), sizes.size());
  };
  CHECK(owners({7, 5, 5, 5}, 1) == std::vector<Rank>{0, 0, 0, 0});
  CHECK(owners({7, 5, 5, 5}, 2) == std::vector<Rank>{0, 1, 1, 0}); // 7 | 5 | 5 to 5 | 5 to 7
  CHECK(owners({3, 5, 5, 5}, 2) == std::vector<Rank>{1, 0, 1, 0});
  CHECK(owners({3, 5, 5, 5}, 3) == std::vector<Rank>{0, 0, 1, 2});
  CHECK(owners({2, 9}, 4) == std::vector<Rank>{1, 0}); // two ranks own nothing
}

TEST_CASE("groups of a unit have one owner", "[parallel][ownership]") {
  std::vector<ParameterGroup> const groups = groups_of({4, 3, 2, 6, 6});
  std::vector<ParameterUnit> const units{{"root", 0, 2, 0, 9}, {"block 0", 3, 3, 9, 6}, {"block 1", 4, 4, 15, 6}};
  Ownership const ownership = Ownership::of_units(groups, units, 2);
  CHECK(owners_of(ownership, 5) == std::vector<Rank>{0, 0, 0, 1, 1}); // 9 | 6 to 6 | 6
  check_complete(ownership, {4, 3, 2, 6, 6}, 2);
}

TEST_CASE("no owner has more than the mean and one largest unit", "[parallel][ownership]") {
  for (Rank members = 1; members <= 9; ++members) {
    for (Index const root : {1, 4, 17, 90}) {
      std::vector<Index> sizes(14, 9);
      sizes.front() = root;
      Ownership const ownership = of_units(sizes, members);
      Index most = 0;
      for (Rank member = 0; member < members; ++member) most = std::max(most, ownership.elements(member));
      INFO(members << " members, root of " << root);
      CHECK(most * members <= ownership.members_shares().elements() + members * std::ranges::max(sizes));
    }
  }
}

TEST_CASE("every element has one owner, whose shares lie side by side", "[parallel][ownership]") {
  for (Rank const members : {1, 2, 3, 5, 8}) {
    INFO(members << " members");
    std::vector<Index> const sizes{11 * 120, 120, 2 * 120, 120, 7 * 120};
    auto const groups = groups_of(sizes);
    check_complete(of_units(sizes, members), sizes, members);
    check_complete(Ownership::of_parts(groups, members), sizes, members);
    CHECK(of_units(sizes, members).owners() == 1);
    CHECK(Ownership::of_parts(groups, members).owners() == members);
    CHECK_FALSE(Ownership::of_parts(groups, members).owner(0));
    check_complete(Ownership::of_one(groups, members, members - 1), sizes, members);
    CHECK(Ownership::of_one(groups, members, members - 1).owner(3) == members - 1);
  }
}
