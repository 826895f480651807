#include "parallel/engine/joint_shares.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>

using namespace trainstone;

namespace {

std::array<float, 32> memory;

StoredVector at(Index begin, Index size) {
  return Vector<float>(memory.data() + begin, static_cast<std::size_t>(size));
}

} // namespace

TEST_CASE("shares side by side in order are one vector, and groups without a share are passed over", "[joint]") {
  // of groups 0 to 6: two side by side, none, one behind them, one behind a gap, one before all, one behind that
  std::array const shares{at(4, 3), at(7, 5), at(0, 0), at(12, 4), at(17, 2), at(0, 2), at(2, 2)};
  auto const share = [&](Index group) { return shares[static_cast<std::size_t>(group)]; };
  auto const check = [&](Index first, Index last, std::vector<std::array<Index, 3>> const& expected) {
    std::vector<JointShares> const found = joint_shares(first, last, share);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      auto const [group, begin, size] = expected[i];
      CHECK(found[i].first_group == group);
      CHECK(found[i].values.data == memory.data() + begin);
      CHECK(found[i].values.size == size);
    }
  };
  check(0, 6, {{0, 4, 12}, {4, 17, 2}, {5, 0, 4}});
  check(1, 3, {{1, 7, 9}});
  check(2, 2, {});
  check(2, 4, {{3, 12, 4}, {4, 17, 2}});
}

TEST_CASE("vectors of other types do not adjoin", "[joint]") {
  StoredVector const first = at(4, 3);
  StoredVector next = at(7, 5);
  CHECK(adjoin(first, next));
  CHECK(!adjoin(next, first));
  next.storage = Storage::bf16;
  CHECK(!adjoin(first, next));
}
