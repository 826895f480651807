#include "core/tree_order.hpp"

#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <string>
#include <vector>

using namespace trainstone;

namespace {

/// Written from the definition, with brackets around each addition.
std::string level_by_level(Index count) {
  std::vector<std::string> sums;
  for (Index i = 0; i < count; ++i) sums.push_back(std::to_string(i));
  while (sums.size() > 1) {
    std::vector<std::string> next;
    for (std::size_t i = 0; i + 1 < sums.size(); i += 2) next.push_back("(" + sums[i] + "+" + sums[i + 1] + ")");
    if (sums.size() % 2 == 1) next.push_back(sums.back());
    sums = next;
  }
  return sums.empty() ? "" : sums.front();
}

} // namespace

TEST_CASE("the steps of a sum in the balanced tree are those of its definition, with few sums at a time", "[tree]") {
  for (Index count = 0; count <= 70; ++count) {
    INFO(count << " terms");
    std::vector<std::string> places(static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(count))));
    Index steps = 0;
    TreeOrder order(count);
    for (TreeOrder::Step step{}; order.next(step); ++steps) {
      auto const place = static_cast<std::size_t>(step.place);
      REQUIRE(place < places.size());
      if (step.adds())
        places[place - 1] = "(" + places[place - 1] + "+" + places[place] + ")";
      else
        places[place] = std::to_string(step.term);
    }
    CHECK((places.empty() ? "" : places.front()) == level_by_level(count));
    CHECK(steps == (count == 0 ? 0 : 2 * count - 1));
  }
}
