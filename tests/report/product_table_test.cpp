// The output of matmul and of explain matmul.

#include "report/product_table.hpp"
#include "report/product_text.hpp"

#include "support/lines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <nlohmann/json.hpp>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

constexpr ProductSize size{1000, 1000, 500}; // 1e9 FLOPs

ProductRow right_row() {
  return {.name = "3d",
          .grid = {2, 2, 2},
          .predicted = {3, 1048576, 2097152},
          .counted = {3, 1048576, 2097152},
          .bound_bytes = 524288,
          .seconds = {0.002, 0.001, 0.003},
          .multiply_seconds = {0.001, 0.001, 0.001},
          .exchange_seconds = 0.0005};
}

ProductHeader header() {
  ProductHeader header;
  header.size = size;
  return header;
}

std::string words_of(ProductRow const& row) { return test::without_widths(product_table(size, {row})); }

} // namespace

TEST_CASE("a product that is right has a time, a prediction and a rate", "[products]") {
  CHECK_THAT(words_of(right_row()),
             ContainsSubstring("\n3d 2 x 2 x 2 3 1.000 0.500 2.000 2.000 1.100 2.900 1.500 -25.0 1.000 500.00 0 0\n"));
  CHECK_THAT(right_row().residual().value(), WithinRel(-0.25, 1e-12));
  auto const json = nlohmann::json::parse(product_json(header(), {right_row()}, {"summa: none"}));
  CHECK(json["status"] == "RIGHT");
  CHECK(json["header"]["left_out"][0] == "summa: none");
  CHECK(json["rows"][0]["predicted"] == json["rows"][0]["counted"]);
  CHECK_THAT(json["rows"][0]["flops_per_second"].get<double>(), WithinRel(5e11, 1e-12));
}

TEST_CASE("a product that is wrong, or is not counted as predicted, has neither time nor rate", "[products]") {
  ProductRow wrong = right_row(), unlike = right_row();
  wrong.wrong = 7;
  unlike.unlike = 2;
  CHECK_THAT(words_of(wrong), ContainsSubstring(" WRONG - - - - - - 7 0\n"));
  CHECK_THAT(words_of(unlike), ContainsSubstring(" WRONG - - - - - - 0 2\n"));
  for (ProductRow const& row : {wrong, unlike}) {
    auto const json = nlohmann::json::parse(product_json(header(), {right_row(), row}, {}));
    CHECK(json["status"] == "WRONG");
    CHECK(json["rows"][1]["seconds"].is_null());
    CHECK(json["rows"][1]["flops_per_second"].is_null());
    CHECK(!row.residual());
  }
}

TEST_CASE("an explained product names blocks, shares of them and the terms that are added", "[products]") {
  ProductGrid const grid{2, 2, 2};
  ProductWalk const walk = walk_product(ProductAlgorithm::grid, grid, small_product_size(grid));
  BusiestProductRank const busiest = count_busiest(ProductAlgorithm::grid, grid, walk.size);
  std::string const words = test::without_widths(product_walk_text("3d", walk, busiest));
  for (char const* const text :
       {"3d on a grid of 2 x 2 x 2, 8 ranks\nC (4, 4) = A (4, 4) B (4, 4)\n",
        "\nafter step 1: A along x: all_gather direct\n", "\nrank 6 0,1,1 1/2 A(1,1) 1/2 B(1,0) -\n",
        "\nrank 6 0,1,1 A(1,1)* 1/2 B(1,0) -\n", "\nrank 6 0,1,1 A(1,1) B(1,0) C(1,0) of k 1*\n",
        "\nrank 6 0,1,1 A(1,1) B(1,0) 1/2 C(1,0)*\n", "\nbusiest rank: 3 messages, 6 elements sent\n",
        "\nlower bound: 6 elements sent\n"})
    CHECK_THAT(words, ContainsSubstring(text));
  auto const json = nlohmann::json::parse(product_walk_json("3d", walk, busiest));
  CHECK(json["moments"].size() == 5);
  CHECK(json["moments"][4]["ranks"][6].back()["held"] == 2);
  CHECK(json["busiest"]["sent"] == 6);
}
