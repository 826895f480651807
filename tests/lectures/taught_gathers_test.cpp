// Stage 3 by broadcast and by all-gather against closed forms that are written down here once more.

#include "lectures/taught_gathers.hpp"

#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <algorithm>

using namespace trainstone;
using Catch::Matchers::WithinRel;

namespace {

constexpr AlphaBetaGamma constants{1e-6, 1e-10, 0};

GatherRow row_of(Rank ranks, std::string_view method) {
  TaughtGathers const lecture = compare_taught_gathers(ranks, uniform_machine(constants));
  return *std::ranges::find(lecture.rows, method, &GatherRow::method);
}

// GPT-2's groups on 4 ranks, each a multiple of 4 x 256 elements: 50304 x 768 + 1024 x 768 + 2 x 768 = 39421440 is 512
// short
constexpr std::int64_t root = 39421952, block = 7087872 + 256; // 12 h^2 + 13 h
constexpr std::int64_t all = root + 12 * block;

} // namespace

TEST_CASE("GPT-2 on 4 ranks: one owns the root group, three own four blocks each", "[lecture]") {
  TaughtGathers const lecture = compare_taught_gathers(4, uniform_machine(constants));
  CHECK(lecture.parameters == all);
  CHECK(lecture.most_owned == root);
  for (GatherRow const& row : lecture.rows) {
    INFO(row.method);
    bool const shared = row.method == "all-gather, ring";
    CHECK_THAT(row.memory_balance, WithinRel(shared ? 1.0 : 4.0 * root / all, 1e-14));
  }
}

TEST_CASE("busiest ranks of gathers send what the trees and rings say", "[lecture]") {
  GatherRow const ring = row_of(4, "all-gather, ring");
  CHECK(ring.busiest == 2 * all / 4 * 3);
  CHECK(ring.balance == 1);
  CHECK(ring.messages == 2 * 13 * 3);
  // the owner of the root group sends it to three; the others' four blocks are less
  CHECK(row_of(4, "broadcast, linear").busiest == 2 * 3 * root);
  // in the tree it sends the root group to two children, and four blocks of one other owner to one child
  CHECK(row_of(4, "broadcast, binomial").busiest == 2 * (2 * root + 4 * block));
}

TEST_CASE("closed sums of gathers are the counted ones", "[lecture]") {
  for (Rank const ranks : {2, 3, 4, 5, 8, 13, 16, 64}) {
    for (GatherRow const& row : compare_taught_gathers(ranks, uniform_machine(constants)).rows) {
      INFO(row.method << " on " << ranks);
      bool const folded = (ranks & (ranks - 1)) != 0 && row.method == "broadcast, scatter + all-gather";
      CHECK(row.exact_total.has_value() == !folded);
      if (row.exact_total) CHECK(*row.exact_total == row.counted_total);
    }
  }
}

TEST_CASE("prices of gathers are the closed ones", "[lecture]") {
  // two gathers of 13 groups; bytes are twice the elements
  double const bytes = 2.0 * all, groups = 13;
  auto const expect = [&](std::string_view method, double starts, double volume) {
    INFO(method);
    GatherRow const row = row_of(4, method);
    CHECK_THAT(row.priced, WithinRel(2 * (groups * starts * constants.alpha + volume * bytes * constants.beta), 1e-12));
    CHECK_THAT(row.without_start, WithinRel(2 * volume * bytes * constants.beta, 1e-12));
  };
  expect("all-gather, ring", 3, 0.75);
  expect("broadcast, linear", 3, 3);
  expect("broadcast, binomial", 2, 2);
  expect("broadcast, scatter + all-gather", 2 + 3, 0.5 + 0.25 + 0.75);
}

TEST_CASE("gathers are compared of as many ranks as can be simulated", "[lecture]") {
  CHECK_THROWS_AS(compare_taught_gathers(1, MachineModel()), Error);
  CHECK_THROWS_AS(compare_taught_gathers(65, MachineModel()), Error);
}
