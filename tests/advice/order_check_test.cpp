// Orders and their correlation.

#include "advice/order_check.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <numeric>

using namespace trainstone;
using Catch::Approx;

namespace {

RankedWay played(double seconds) { return {.way = {}, .keys = {}, .played = true, .time = {.step = seconds}}; }

} // namespace

TEST_CASE("Kendall's tau is 1 minus twice the share of pairs in the wrong order", "[advice]") {
  std::vector<double> order{1, 2, 3, 4, 5};
  std::vector<double> const sorted = order;
  do {
    int wrong = 0; // exchanges of neighbours that bubble sort needs
    std::vector<double> copy = order;
    for (std::size_t round = 0; round < copy.size(); ++round)
      for (std::size_t i = 0; i + 1 < copy.size(); ++i)
        if (copy[i] > copy[i + 1]) std::swap(copy[i], copy[i + 1]), ++wrong;
    CHECK(kendall_tau(sorted, order) == Approx(1 - 2.0 * wrong / 10));
  } while (std::ranges::next_permutation(order).found);
  CHECK(kendall_tau({1, 1, 2}, {3, 5, 9}) == Approx(2 / std::sqrt(6.0))); // a pair is equal in one of them
  CHECK(kendall_tau({1, 1}, {1, 2}) == 0);
  CHECK_THROWS(kendall_tau({1}, {1}));
}

TEST_CASE("what is run is spread over the list, with its ends", "[advice]") {
  std::vector<RankedWay> ranked;
  for (double const seconds : {1.0, 1.01, 1.02, 1.03, 2.0, 4.0, 7.9, 8.0}) ranked.push_back(played(seconds));
  ranked.push_back({}); // was not played
  CHECK(spread_choices(ranked, 4) == std::vector<std::size_t>{0, 4, 5, 7});
  CHECK(spread_choices(ranked, 2) == std::vector<std::size_t>{0, 7});
  CHECK(spread_choices(ranked, 50).size() == 8);
  CHECK(spread_choices({}, 3).empty());
}

TEST_CASE("a check names the way that is furthest from the median ratio, and fails below 0.7", "[advice]") {
  RankedOrder const good = check_order({{played(1), 2}, {played(2), 4}, {played(3), 9}, {played(4), 8.4}});
  CHECK(good.scale == Approx(2.05));
  CHECK(good.worst == 2);
  CHECK(good.tau == Approx(2.0 / 3));
  CHECK_FALSE(good.passes());
  CHECK(check_order({{played(1), 2}, {played(2), 4}, {played(3), 5}}).passes());
  CHECK(order_check_text(good).find("Kendall's tau 0.667 of 4 ways") != std::string::npos);
}
