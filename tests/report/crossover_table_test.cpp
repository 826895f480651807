#include "report/crossover_table.hpp"

#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <limits>

using namespace trainstone;
using Catch::Matchers::WithinRel;

TEST_CASE("the pick is the least predicted time, the fastest the least measured one", "[crossover]") {
  std::vector<SizeComparison> const sizes{
      {8, {{"ring", 3e-6, 3.5e-6}, {"tree", 2e-6, 4e-6}, {"butterfly", 2e-6, 3.2e-6}}},
      {1024, {{"ring", 5e-6, 5e-6}, {"tree", 6e-6, 7e-6}}},
  };
  std::vector<CrossoverRow> const rows = crossover_rows(sizes);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].picked == "tree"); // the first of equals
  CHECK(rows[0].predicted_seconds == 2e-6);
  CHECK(rows[0].measured_seconds == 4e-6);
  CHECK(rows[0].fastest == "butterfly");
  CHECK(rows[0].fastest_seconds == 3.2e-6);
  CHECK_THAT(rows[0].loss.value(), WithinRel(0.25, 1e-12));
  CHECK(rows[1].picked == "ring");
  CHECK(rows[1].fastest == "ring");
  CHECK(rows[1].loss == 0);
}

TEST_CASE("a size with one competitor has no row", "[crossover]") {
  std::vector<SizeComparison> const sizes{{8, {{"ring", 3e-6, 3e-6}}}, {16, {{"ring", 3e-6, {}}, {"tree", 2e-6, {}}}}};
  std::vector<CrossoverRow> const rows = crossover_rows(sizes);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].bytes == 16);
}

TEST_CASE("without measurements there is no loss", "[crossover]") {
  std::vector<SizeComparison> const sizes{{8, {{"ring", 3e-6, {}}, {"tree", 2e-6, {}}}},
                                          {16, {{"ring", 3e-6, 5e-6}, {"tree", 2e-6, {}}}}};
  std::vector<CrossoverRow> const rows = crossover_rows(sizes);
  CHECK(rows[0].fastest.empty());
  CHECK(!rows[0].loss);
  CHECK(rows[1].fastest == "ring");
  CHECK(!rows[1].loss); // the picked one was not measured
}

TEST_CASE("predictions alone are told in ranges of sizes", "[crossover]") {
  std::vector<SizeComparison> sizes;
  for (std::uint64_t bytes = 8; bytes <= 512; bytes *= 2) {
    double const size = static_cast<double>(bytes);
    sizes.push_back({bytes, {{"ring", 9e-6 + size * 1e-8, {}}, {"tree", 8e-6 + size * 2e-8, {}}}});
  }
  CHECK(crossover_table(crossover_rows(sizes)) ==
        "      from B         to B  auto picks               predicted us        to us\n"
        "           8           64  tree                             8.16         9.28\n"
        "         128          512  ring                            10.28        14.12\n");
}

TEST_CASE("measured sizes are told one by one, with the loss at the end", "[crossover]") {
  std::vector<SizeComparison> const sizes{{8, {{"ring", 3e-6, 3e-6}, {"tree", 2e-6, 3.3e-6}}},
                                          {64, {{"ring", 3e-6, 4e-6}, {"tree", 4e-6, 5e-6}}}};
  CHECK(crossover_table(crossover_rows(sizes)) ==
        "      size B  auto picks               predicted us  measured us  measured fastest          measured us   "
        "loss %\n"
        "           8  tree                             2.00         3.30  ring                             3.00     "
        "10.0\n"
        "          64  ring                             3.00         4.00  ring                             4.00      "
        "0.0\n"
        "loss by choosing from predictions: mean 5.0 %, largest 10.0 %, over 2 sizes\n");
}

TEST_CASE("no sizes are an empty table", "[crossover]") {
  CHECK(crossover_rows({}).empty());
  CHECK(crossover_table({}).find('\n') + 1 == crossover_table({}).size());
}

TEST_CASE("times that are none are refused", "[crossover]") {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  auto const refused = [](std::vector<Competitor> const& competitors) {
    std::vector<SizeComparison> const sizes{{8, competitors}};
    CHECK_THROWS_AS(crossover_rows(sizes), Error);
  };
  refused({});
  refused({{"ring", nan, {}}});
  refused({{"ring", -1e-6, {}}});
  refused({{"ring", 1e-6, nan}});
}
