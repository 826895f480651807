// The lecture on distributed products: closed forms against counts, and the figures, written down here once more.

#include "lectures/lecture_products.hpp"

#include "core/error.hpp"
#include "support/lines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <array>
#include <cmath>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

TEST_CASE("the closed forms of products are what their schedules count", "[lecture]") {
  for (Rank const ranks : {1, 2, 3, 4, 6, 8, 9, 16, 27, 32, 64, 100}) {
    TaughtProducts const lecture = compare_taught_products(ranks);
    REQUIRE(lecture.products.size() == 3);
    for (TaughtProduct const& product : lecture.products)
      for (TaughtProductRow const& row : product.rows) {
        INFO(ranks << " ranks, " << product.what << ", " << row.arrangement << " " << to_string(row.grid));
        CHECK(row.messages == static_cast<double>(row.counted_messages));
        CHECK_THAT(row.sent, WithinRel(static_cast<double>(row.counted_sent), 1e-12));
        CHECK_THAT(row.kept, WithinRel(static_cast<double>(row.counted_kept), 1e-12));
        CHECK(row.sent >= product.bound * (1 - 1e-12));
      }
  }
}

TEST_CASE("a cube of ranks meets the bound, and a line sends nearly a whole matrix", "[lecture]") {
  std::vector<TaughtShareRow> const shares = compare_taught_products(1).shares;
  auto const row_of = [&](Rank ranks) { return *std::ranges::find(shares, ranks, &TaughtShareRow::ranks); };
  TaughtShareRow const few = row_of(64), many = row_of(4096);
  CHECK_THAT(few.line, WithinRel(63.0 / 64, 1e-14));
  CHECK_THAT(few.summa.value(), WithinRel(14.0 / 64, 1e-14));
  CHECK_THAT(few.cannon.value(), WithinRel(16.0 / 64, 1e-14));
  CHECK_THAT(few.layers.value(), WithinRel(3.0 * 2 * 4 / 64, 1e-14)); // 4 layers of 4 x 4
  CHECK_THAT(few.box, WithinRel(9.0 / 64, 1e-14));
  CHECK_THAT(few.box, WithinRel(few.bound, 1e-14));
  CHECK_THAT(many.line, WithinAbs(1.000, 5e-4));
  CHECK_THAT(many.summa.value(), WithinAbs(0.031, 5e-4));
  CHECK_THAT(many.cannon.value(), WithinAbs(0.031, 5e-4));
  CHECK_THAT(many.layers.value(), WithinAbs(0.020, 5e-4));
  CHECK_THAT(many.box, WithinAbs(0.011, 5e-4));
  CHECK_THAT(many.box, WithinRel(many.bound, 1e-14));
}

TEST_CASE("from eight tensor ranks on a second axis sends less", "[lecture]") {
  std::vector<std::vector<TensorGridRow>> const grids = compare_taught_products(1).tensor_grids;
  struct Best {
    Rank x, y;
    double sent, on_a_line;
  };
  std::array<Best, 4> constexpr expected{{{4, 1, 6.0, 6.0}, {4, 2, 6.0, 7.0}, {8, 2, 5.0, 7.5}, {16, 4, 3.0, 7.875}}};
  REQUIRE(grids.size() == expected.size());
  for (std::size_t i = 0; i < grids.size(); ++i) {
    CHECK(grids[i].front().y == 1);
    CHECK(grids[i].front().exact == expected[i].on_a_line);
    CHECK(std::ranges::count(grids[i], true, &TensorGridRow::is_best) == 1);
    for (TensorGridRow const& row : grids[i]) {
      INFO(row.x << " x " << row.y);
      CHECK_THAT(row.counted, WithinRel((8.0 * (row.x - 1) + 24.0 * (row.y - 1)) / (row.x * row.y), 1e-12));
      CHECK_THAT(row.exact, WithinRel(row.counted, 1e-12));
      CHECK(row.is_best == (row.x == expected[i].x && row.y == expected[i].y));
      if (row.is_best) CHECK(row.exact == expected[i].sent);
    }
  }
}

TEST_CASE("the lecture on products prints what it compares, and limits ranks", "[lecture]") {
  std::string const words = test::without_widths(lecture_products_text(compare_taught_products(64)));
  for (char const* const line :
       {"\n2a. a square product: m = 4096, n = 4096, k = 4096 on 64 ranks; not taught\n",
        "\n3-D, best box 4 x 4 x 4 9 9 2359296 2359296 1.00 ", "\n64 0.984 0.219 0.250 0.375 0.141 0.141\n",
        "\n64 16 4 3.000 3.000 least\n", "\n4 4 1 6.000 6.000 Megatron-LM least\n"})
    CHECK_THAT(words, ContainsSubstring(line));
  // each formula once, and what is rounded is said
  CHECK_THAT(words, ContainsSubstring("\nbox, 1-D or 3-D x+y+z-3 "));
  CHECK(words.find("x+y+z-3") == words.rfind("x+y+z-3"));
  CHECK_THAT(words, !ContainsSubstring("rounded up"));
  std::string const of_seven = test::without_widths(lecture_products_text(compare_taught_products(7)));
  for (char const* const kind :
       {"\nbox, 1-D or 3-D x+y+z-3 ", "\n2-D, SUMMA 2(q-1) ", "\n2-D, Cannon 2q ", "\n2.5-D 2lg c + "})
    CHECK_THAT(of_seven, ContainsSubstring(kind)); // also those that 7 ranks do not have
  CHECK_THAT(of_seven, ContainsSubstring("m = 4102, n = 4102, k = 4102 on 7 ranks"));
  CHECK_THAT(of_seven, ContainsSubstring("\n4096, 4096 and 4096 are rounded up to multiples of 7,"));
  for (TaughtProduct const& product : compare_taught_products(6).products) // neither a square nor layers of squares
    CHECK(product.rows.size() == 4);
  CHECK_THROWS_AS(compare_taught_products(0), InputError);
  CHECK_THROWS_AS(compare_taught_products(513), InputError);
}
