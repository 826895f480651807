// The lecture on ZeRO against the published digits and against closed forms that are written down here once more.

#include "lectures/taught_zero.hpp"

#include "comm/simulation/chooser.hpp"
#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <cmath>

using namespace trainstone;
using Catch::Matchers::WithinRel;

namespace {

TaughtZero taught(std::int64_t ranks) { return compare_taught_zero(ranks, default_machine()); }

/// Bytes of mixed16 per parameter on n devices.
double mixed16(int stage, double n) {
  switch (stage) {
  case 1: return 2 + 2 + 12 / n;
  case 2: return 2 + (2 + 12) / n;
  case 3: return (2 + 2 + 12) / n;
  default: return 16;
  }
}

/// Half a unit of the third digit, in which the published figures were rounded: 52.5 is 52.45 to 52.55.
double rounding(double published) { return 0.5 * std::pow(10, std::floor(std::log10(published)) - 2); }

} // namespace

TEST_CASE("model state per device rounds to the published table", "[lecture]") {
  TaughtZero const lecture = taught(8);
  REQUIRE(lecture.memory.size() == 4);
  for (ZeroMemoryRow const& row : lecture.memory) {
    for (std::size_t i = 0; i < taught_zero_ranks.size(); ++i) {
      INFO("stage " << row.stage << ", N = " << taught_zero_ranks[i]);
      double const published = row.taught_gigabytes[i];
      CHECK(std::abs(row.bytes[i] / 1e9 - published) <= rounding(published) * (1 + 1e-12)); // 41.25 is a tie
      CHECK_THAT(row.bytes[i], WithinRel(7.5e9 * mixed16(row.stage, static_cast<double>(taught_zero_ranks[i])), 1e-15));
    }
  }
  // 4, 2 and 0 bytes of 7.5 B parameters remain
  for (std::size_t stage = 1; stage <= 3; ++stage)
    CHECK(lecture.memory[stage].limit == std::array{120e9, 30e9, 15e9, 0.0}[stage]);
  CHECK(lecture.memory[1].taught_gigabytes == std::array{120.0, 52.5, 35.6, 31.4, 30.4, 30.1});
  CHECK(lecture.memory[2].taught_gigabytes == std::array{120.0, 41.3, 21.6, 16.6, 15.4, 15.1});
  CHECK(lecture.memory[3].taught_gigabytes == std::array{120.0, 30.0, 7.5, 1.88, 0.469, 0.117});
}

TEST_CASE("memory ratios are the taught ones for many devices, and less for few", "[lecture]") {
  auto const exact = [](std::int64_t ranks, std::size_t recipe) { return taught(ranks).ratios[recipe].exact; };
  // many: ranks * 1e-4 away at most, as 12/N, 14/N and 16/N of 2 bytes
  for (std::size_t stage = 0; stage < 2; ++stage) {
    CHECK_THAT(exact(65536, 0)[stage], WithinRel(std::array{4.0, 8.0}[stage], 1.1e-4));
    CHECK_THAT(exact(65536, 2)[stage], WithinRel(std::array{5.0, 10.0}[stage], 1.4e-4)); // taught as 4 and 8
  }
  for (std::size_t recipe = 0; recipe < 4; ++recipe) CHECK_THAT(exact(48, recipe)[2], WithinRel(48.0, 1e-15));
  CHECK_THAT(exact(8, 0)[0], WithinRel(16 / 5.5, 1e-15));
  CHECK_THAT(exact(8, 0)[1], WithinRel(16 / 3.75, 1e-15));
  CHECK_THAT(exact(8, 1)[0], WithinRel(18 / 7.5, 1e-15)); // 2 + 4 + 12/8
  CHECK_THAT(exact(8, 1)[1], WithinRel(18 / 4.0, 1e-15)); // 2 + 16/8
  CHECK_THAT(exact(8, 2)[0], WithinRel(20 / 6.0, 1e-15)); // 2 + 2 + 16/8
  CHECK_THAT(exact(8, 3)[0], WithinRel(16 / 9.0, 1e-15)); // 4 + 4 + 8/8
  CHECK_THAT(exact(8, 3)[1], WithinRel(16 / 5.5, 1e-15)); // 4 + 12/8
}

TEST_CASE("the largest models in 32 GB round to the theory's digits", "[lecture]") {
  std::vector<ZeroLargestRow> const rows = taught(8).largest;
  constexpr std::array<double, 4> at_64{2.0, 7.64, 14.4, 128}, at_1024{2.0, 7.98, 15.9, 2048};
  for (std::size_t stage = 0; stage < 4; ++stage) {
    INFO("stage " << stage);
    CHECK(std::abs(rows[stage].exact[0] / 1e9 - at_64[stage]) <= rounding(at_64[stage]));
    CHECK(std::abs(rows[stage].exact[1] / 1e9 - at_1024[stage]) <= rounding(at_1024[stage]));
    CHECK_THAT(rows[stage].exact[2], WithinRel(32e9 / mixed16(static_cast<int>(stage), 8), 1e-15));
    CHECK_THAT(rows[stage].with_tensor_ranks, WithinRel(16 * rows[stage].exact[0], 1e-15));
  }
}

TEST_CASE("volumes are counted as 1, 1, 1.5, 1, 1.5 and 1.5 times data parallelism, less the rank's own share",
          "[lecture]") {
  for (std::int64_t const ranks : {2, 3, 8, 31, 64, 1000}) {
    TaughtZero const lecture = taught(ranks);
    INFO(ranks << " ranks");
    CHECK(lecture.padded_parameters % (256 * ranks) == 0);
    CHECK(lecture.padded_parameters - 7500000000 < 256 * ranks);
    REQUIRE(lecture.volumes.size() == 6);
    constexpr std::array<int, 6> halves{2, 2, 3, 2, 3, 3};
    for (std::size_t i = 0; i < halves.size(); ++i) {
      ZeroVolumeRow const& row = lecture.volumes[i];
      INFO(row.method);
      CHECK(row.exact == row.counted);
      CHECK(row.counted * ranks == halves[i] * lecture.padded_parameters * (ranks - 1));
      CHECK(row.taught.empty() == (row.method == "stage 1, all-reduce" || row.method == "stage 2, all-reduce"));
      if (!row.taught.empty()) CHECK(std::stod(row.taught) == halves[i] / 2.0);
    }
  }
}

TEST_CASE("the lecture on ZeRO refuses one rank, where nothing is sent, and more than it can count", "[lecture]") {
  CHECK_THROWS_AS(taught(1), InputError);
  CHECK_THROWS_AS(taught(most_zero_lecture_ranks + 1), InputError);
}
