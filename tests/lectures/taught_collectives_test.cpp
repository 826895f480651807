#include "lectures/taught_collectives.hpp"

#include "comm/simulation/chooser.hpp"
#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <string_view>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::WithinRel;

namespace {

TaughtCollectives compare(int ranks, std::uint64_t steps = 11) {
  return compare_taught_collectives(ranks, steps * taught_size_step(ranks), default_machine());
}

template <class Row>
Row const& row_of(std::vector<Row> const& rows, std::string_view method) {
  return *std::ranges::find(rows, method, &Row::method);
}

bool power_of_two(int ranks) { return (ranks & (ranks - 1)) == 0; }

} // namespace

TEST_CASE("what is exact is what is counted, for any number of ranks", "[taught]") {
  for (int const ranks : {2, 3, 4, 5, 6, 7, 8, 13, 16, 31, 32, 33}) {
    TaughtCollectives const lecture = compare(ranks);
    for (TotalRow const& row : lecture.totals) {
      INFO(row.method << " on " << ranks);
      CHECK(row.exact == row.counted);
      CHECK(row.balance >= 1);
    }
    for (RankRow const& row : lecture.busiest) {
      INFO(row.method << " on " << ranks);
      CHECK(row.exact_rounds == row.counted_rounds);
      CHECK(row.exact_bytes == row.counted_bytes);
    }
    for (LoadRow const& row : lecture.loads) {
      INFO(row.method << " on " << ranks);
      CHECK(row.exact_busiest.has_value() == (row.method != "pipelined tree"));
      if (row.exact_busiest) CHECK(*row.exact_busiest == row.counted_busiest);
      CHECK_THAT(row.mean, WithinRel(4.0 * static_cast<double>(lecture.bytes) * (ranks - 1) / ranks, 1e-12));
    }
  }
}

TEST_CASE("closed prices are the simulated ones", "[taught]") {
  for (int const ranks : {2, 3, 4, 5, 8, 13, 16, 33, 64}) {
    for (TimeTable const& table : compare(ranks).times) {
      for (TimeRow const& row : table.rows) {
        INFO(row.method << " of " << table.bytes << " bytes on " << ranks);
        bool const folded = !power_of_two(ranks) && (row.method == "butterfly" || row.method == "rabenseifner");
        CHECK(row.exact.has_value() == (!folded && row.method != "naive" && row.method != "pipelined tree"));
        if (row.exact) CHECK_THAT(row.priced, WithinRel(*row.exact, 1e-12));
      }
    }
  }
}

TEST_CASE("taught costs of ring and Rabenseifner are their prices without additions", "[taught]") {
  AlphaBetaGamma const constants{3e-6, 2e-10, 0};
  for (int const ranks : {2, 3, 4, 8, 13, 64}) {
    TaughtCollectives const lecture =
        compare_taught_collectives(ranks, taught_size_step(ranks), uniform_machine(constants));
    for (TimeTable const& table : lecture.times) {
      for (TimeRow const& row : table.rows) {
        INFO(row.method << " of " << table.bytes << " bytes on " << ranks);
        CHECK(row.taught_cost.has_value() == (row.method == "ring" || row.method == "rabenseifner"));
        // Rabenseifner's is taught for every N, but holds for powers of two
        if (row.taught_cost && row.exact) CHECK_THAT(*row.taught_cost, WithinRel(row.priced, 1e-12));
      }
      CHECK(*row_of(table.rows, "rabenseifner").taught_cost <= *row_of(table.rows, "ring").taught_cost * (1 + 1e-12));
    }
  }
}

TEST_CASE("Rabenseifner's rounds send halves, quarters and so on, and back", "[taught]") {
  for (int const ranks : {2, 4, 16, 64}) {
    TaughtCollectives const lecture = compare(ranks);
    double sum = 0;
    for (ExchangeRow const& row : lecture.exchanges) {
      INFO("round " << row.round << " on " << ranks);
      CHECK(static_cast<double>(row.counted) == row.taught_bytes);
      sum += row.taught_bytes;
    }
    CHECK(sum == 2.0 * static_cast<double>(lecture.bytes) * (ranks - 1) / ranks);
  }
  CHECK(compare(6).exchanges.empty());
}

TEST_CASE("at two ranks the textbook's totals are twice the counter", "[taught]") {
  TaughtCollectives const lecture = compare(2);
  for (std::string_view const method : {"main device", "naive", "ring", "tree"}) {
    TotalRow const& row = row_of(lecture.totals, method);
    INFO(method);
    CHECK(row.taught == 2.0 * static_cast<double>(row.counted));
  }
  for (std::string_view const method : {"dedicated server", "butterfly"}) {
    TotalRow const& row = row_of(lecture.totals, method);
    INFO(method);
    CHECK(row.taught == static_cast<double>(row.counted));
  }
}

TEST_CASE("totals that are equal are not equally balanced", "[taught]") {
  TaughtCollectives const lecture = compare(16);
  CHECK(row_of(lecture.totals, "main device").balance == 8);        // (N-1) S over the mean 2 (N-1) S / N
  CHECK(row_of(lecture.totals, "dedicated server").balance == 8.5); // N S over 2 N S / (N+1)
  CHECK(row_of(lecture.totals, "ring").balance == 1);
  CHECK(row_of(lecture.totals, "naive").balance == 1);
  CHECK_THAT(row_of(lecture.totals, "tree").balance, WithinRel(4.0 * 16 / 30, 1e-12)); // lg N S over 2 (N-1) S / N
}

TEST_CASE("the ring is quickest without start-up cost only", "[taught]") {
  TaughtCollectives const lecture = compare_taught_collectives(16, std::uint64_t{1} << 26, default_machine());
  TimeTable const& large = lecture.times.at(0);
  TimeTable const& small = lecture.times.at(1);
  CHECK(small.bytes == 64);
  for (TimeRow const& row : large.rows)
    CHECK(row_of(large.rows, "ring").without_start <= row.without_start * (1 + 1e-12));
  CHECK(row_of(small.rows, "ring").without_start < row_of(small.rows, "tree").without_start);
  CHECK(row_of(small.rows, "ring").priced > row_of(small.rows, "tree").priced);
  CHECK(row_of(small.rows, "tree").priced > row_of(small.rows, "butterfly").priced);
  CHECK(row_of(large.rows, "ring").priced < row_of(large.rows, "tree").priced);
}

TEST_CASE("butterfly and Rabenseifner change places at n*", "[taught]") {
  for (int const ranks : {4, 8, 16}) {
    double const until = compare(ranks).butterfly_until.value();
    auto const step = static_cast<double>(taught_size_step(ranks));
    for (double const factor : {0.98, 1.02}) {
      auto const steps = static_cast<std::uint64_t>(until * factor / step);
      std::vector<TimeRow> const rows = compare(ranks, steps).times.at(0).rows;
      INFO(ranks << " ranks, " << factor << " n*");
      CHECK((row_of(rows, "butterfly").priced < row_of(rows, "rabenseifner").priced) == (factor < 1));
    }
  }
  // 3 alpha / ((3 - 14/8) beta + (3 - 7/8) gamma) with 1 us, 10 GB/s, 8 GB/s
  CHECK_THAT(compare(8).butterfly_until.value(), WithinRel(7680.0, 1e-12));
  CHECK(!compare(6).butterfly_until);
}

TEST_CASE("the constants are those of the machine's curves at the size", "[taught]") {
  MachineModel machine;
  machine.set_messages(Link::intra, PiecewiseLinear({{0, 2e-6, 3e-10}, {1000, 2.2e-6, 1e-10}}));
  machine.reduce = PiecewiseLinear({{0, 1e-7, 2e-10}, {5000, 1e-7, 4e-10}});
  for (std::uint64_t const bytes : {8, 500, 4000, 100000}) {
    INFO(bytes << " bytes");
    auto const size = static_cast<double>(bytes);
    AlphaBetaGamma const constants = constants_of(machine, bytes);
    CHECK(constants.alpha == 2e-6);
    // 2e-6 + 0.2e-6 + 1e-10 S beyond 1000 bytes; differences of 2e-9 and more lose three digits
    CHECK_THAT(constants.beta, WithinRel(bytes < 1000 ? 3e-10 : 0.2e-6 / size + 1e-10, 1e-12));
    CHECK_THAT(constants.gamma, WithinRel(bytes < 5000 ? 2e-10 : 4e-10, 1e-12));
  }
  // both tables are priced with their own: 2 ranks send whole halves, so that the tree's two messages are of S bytes
  std::uint64_t const bytes = 100000;
  TaughtCollectives const lecture = compare_taught_collectives(2, bytes, machine);
  CHECK_THAT(lecture.times.at(0).constants.beta, WithinRel(1.02e-10, 1e-12));
  CHECK_THAT(lecture.times.at(1).constants.beta, WithinRel(3e-10, 1e-12));
  CHECK_THAT(row_of(lecture.times.at(0).rows, "tree").exact.value(),
             WithinRel(2 * (2.2e-6 + 1e-10 * 1e5) + 4e-10 * 1e5, 1e-12));
}

TEST_CASE("ranks and sizes without even blocks are refused with the nearest ones", "[taught]") {
  CHECK(taught_size_step(8) == 32);
  CHECK(taught_size_step(6) == 48); // blocks of 6 ranks and of the 4 that are not folded
  auto const error_of = [](int ranks, std::uint64_t bytes, std::string const& words) {
    CHECK_THROWS_MATCHES(compare_taught_collectives(ranks, bytes, default_machine()), InputError,
                         MessageMatches(ContainsSubstring(words)));
  };
  error_of(1, 1024, "must be 2 to 512");
  error_of(513, 1024, "commbench --simulate ranks=513");
  error_of(6, 1000, "nearest legal values: 960 and 1008");
  error_of(6, 47, "nearest legal values: 48");
  error_of(6, 0, "nearest legal values: 48");
}
