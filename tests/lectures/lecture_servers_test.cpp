#include "lectures/lecture_servers.hpp"

#include "core/error.hpp"
#include "support/lines.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>

using namespace trainstone;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the lecture on servers counts 2 N M, and a step takes 2 N M / (K B)", "[lecture]") {
  for (Rank const workers : {1, 3, 8}) {
    TaughtServers const lecture = compare_taught_servers(workers);
    double const m = 1048576, n = workers;
    for (ServersRow const& row : lecture.counts) {
      double const k = row.servers;
      CHECK(row.worker_sent == 1048576);
      CHECK(static_cast<double>(row.server_sent) == n * m / k);
      CHECK(static_cast<double>(row.all_sent) == 2 * n * m);
      CHECK(row.taught_seconds == Approx(m * n / 1e10));
      double const slowest = std::max(n / k, 1.0); // a server's port, or a worker's
      CHECK(row.step_seconds == Approx(2 * m * slowest / 1e10));
      CHECK(row.push_seconds == Approx(row.step_seconds / 2));
    }
  }
  CHECK_THROWS_AS(compare_taught_servers(0), InputError);
  CHECK_THROWS_AS(compare_taught_servers(65), InputError);
}

TEST_CASE("the lecture on servers draws the three layers in both orders", "[lecture]") {
  std::string const text = lecture_servers_text(compare_taught_servers(8));
  CHECK_THAT(text, ContainsSubstring("compute 332211.....123   ends at 14\n"
                                     "                             link    ..333222111...\n"));
  CHECK_THAT(text, ContainsSubstring("compute 332211...123   ends at 12\n"
                                     "                             link    ..332211123.\n"));
  std::string const words = test::without_widths(text);
  CHECK_THAT(words, ContainsSubstring("\n3 1 2 3 14 14 12 12\n"));
  CHECK_THAT(words, ContainsSubstring("\n12 1 2 3 50 41 39 39\n"));
  CHECK_THAT(words, ContainsSubstring("\n12 1 2 6 86 76 75 75\n"));
  CHECK_THAT(words, ContainsSubstring("\n1 1.00 8.00 2 N M = 16 16.00 838.86 us 838.86 us 1677.72 us\n"));
}

TEST_CASE("the lecture on servers shows which stragglers a bound helps against", "[lecture]") {
  TaughtServers const lecture = compare_taught_servers(8);
  auto const pushes = [&](std::string const& stragglers, std::optional<Index> staleness) {
    auto const row = std::ranges::find_if(lecture.stragglers, [&](StragglersRow const& one) {
      return one.stragglers == stragglers && one.staleness == staleness;
    });
    REQUIRE(row != lecture.stragglers.end());
    if (row->formula) CHECK(row->pushes == Approx(*row->formula).epsilon(0.01));
    if (staleness) {
      CHECK(row->largest_gap <= *staleness);
      CHECK(row->largest_staleness <= 3 * (2 * *staleness + 1));
    }
    return row->pushes;
  };
  CHECK(pushes("none", 0) == Approx(4));
  CHECK(pushes("none", std::nullopt) == Approx(4).epsilon(0.01));
  CHECK(pushes("one is 4 times slower", 0) == Approx(1));
  CHECK(pushes("one is 4 times slower", 4) == Approx(1).epsilon(0.02)); // it holds the others to its pace
  CHECK(pushes("one is 4 times slower", std::nullopt) == Approx(3.25).epsilon(0.01));
  CHECK(pushes("random, sigma 0.5", 4) > pushes("random, sigma 0.5", 0) / 0.8);
}
