// Names of distributed products: which grids they take, what is chosen, what is refused.

#include "products/plan/product_choice.hpp"

#include "core/error.hpp"
#include "products/plan/product_counts.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

constexpr ProductSize square{64, 64, 64};

std::string chosen(Rank ranks, std::vector<std::string> const& names = {},
                   std::optional<ProductGrid> const& grid = std::nullopt) {
  std::string line;
  for (ProductChoice const& choice : choose_products(square, ranks, names, grid).choices)
    line += choice.name + " " + to_string(choice.grid) + "; ";
  return line;
}

template <class Words>
void check_refused(Rank ranks, std::vector<std::string> const& names, std::optional<ProductGrid> const& grid,
                   Words const& words) {
  CHECK_THROWS_MATCHES(choose_products(square, ranks, names, grid), InputError, MessageMatches(words));
}

} // namespace

TEST_CASE("names of lectures have the grids on which they send least", "[products]") {
  CHECK(chosen(1) == "1d 1 x 1 x 1; summa 1 x 1 x 1; cannon 1 x 1 x 1; 3d 1 x 1 x 1; ");
  CHECK(chosen(8) == "1d 8 x 1 x 1; 2.5d 2 x 2 x 2; 3d 2 x 2 x 2; ");
  CHECK(chosen(16, {"3d", "summa"}) == "summa 4 x 1 x 4; 3d 4 x 2 x 2; ");
  CHECK(chosen(32, {"2.5d"}) == "2.5d 4 x 2 x 4; ");
  CHECK(choose_products({64, 8, 32}, 4, {"1d"}, {}).choices[0].grid == ProductGrid{1, 1, 4}); // B is small
  CHECK(choose_products({8, 64, 32}, 4, {"1d"}, {}).choices[0].grid == ProductGrid{4, 1, 1}); // A is
  CHECK(choose_products({8, 8, 64}, 4, {"1d"}, {}).choices[0].grid == ProductGrid{1, 4, 1});  // C is
  CHECK(choose_products(square, 6, {}, {}).left_out.size() == 3);
}

TEST_CASE("a grid goes to all that take it", "[products]") {
  CHECK(chosen(4, {}, ProductGrid{2, 1, 2}) == "summa 2 x 1 x 2; cannon 2 x 1 x 2; 3d 2 x 1 x 2; ");
  CHECK(chosen(8, {}, ProductGrid{2, 2, 2}) == "2.5d 2 x 2 x 2; 3d 2 x 2 x 2; ");
  CHECK(chosen(6, {}, ProductGrid{1, 6, 1}) == "1d 1 x 6 x 1; 3d 1 x 6 x 1; ");
}

TEST_CASE("ways and grids that ranks do not allow are refused with those that they allow", "[products]") {
  check_refused(6, {"summa"}, {}, ContainsSubstring("q x 1 x q") && ContainsSubstring("legal here: 1d, 3d"));
  check_refused(4, {"4d"}, {}, ContainsSubstring("there is: 1d, summa, cannon, 2.5d, 3d"));
  check_refused(4, {"cannon"}, ProductGrid{4, 1, 1}, ContainsSubstring("legal grids of 4 ranks: 2x1x2"));
  check_refused(4, {}, ProductGrid{2, 2, 2}, ContainsSubstring("4x1x1, 2x2x1, 1x4x1, 2x1x2, 1x2x2, 1x1x4"));
}

TEST_CASE("grids are written with crosses or commas", "[products]") {
  CHECK(parse_product_grid("2x3x4") == ProductGrid{2, 3, 4});
  CHECK(parse_product_grid("2,3,4") == ProductGrid{2, 3, 4});
  CHECK(parse_product_grid("auto") == std::nullopt);
  for (char const* wrong : {"", "2", "2x2", "2x2x", "2x2x2x2", "0x1x1", "-1x1x1", "2x2x2 ", "axbxc", "2x99999999999x1"})
    CHECK_THROWS_AS(parse_product_grid(wrong), InputError);
}

TEST_CASE("no legal grid sends less than the chosen one", "[products]") {
  ProductSize const size{64, 128, 256};
  for (Rank const ranks : {1, 2, 4, 8, 16, 32, 64})
    for (ProductChoice const& choice : choose_products(size, ranks, {}, {}).choices) {
      Index const sent = count_busiest(choice.algorithm, choice.grid, size).sent;
      for (ProductGrid const& other : legal_product_grids(choice.name, ranks)) {
        INFO(choice.name << " " << to_string(choice.grid) << " " << to_string(other));
        CHECK(sent <= count_busiest(choice.algorithm, other, size).sent);
      }
    }
}
