// trainstone explain matmul: who has which block of a distributed product after every step. Part of explain.hpp.

#include "commbench.hpp"
#include "explain.hpp"
#include "products/plan/product_choice.hpp"
#include "report/product_text.hpp"

#include <fmt/format.h>

namespace trainstone {

int explain_product(ExplainArguments const& arguments) {
  constexpr Rank most_ranks = 64; // more than this nobody reads
  constexpr Rank usual_ranks = 8;
  auto const grid = parse_product_grid(arguments.grid.empty() ? "auto" : arguments.grid);
  std::string const name = arguments.algorithm.empty() ? "3d" : arguments.algorithm;
  if (grid)
    TRAINSTONE_REQUIRE_INPUT(Index{grid->x} * grid->y * grid->z <= most_ranks, "--grid {}: must have 1 to {} ranks",
                             arguments.grid, most_ranks);
  Rank ranks = grid ? grid->ranks() : usual_ranks;
  if (!arguments.ranks.empty()) ranks = static_cast<Rank>(parse_count("--ranks", arguments.ranks, 1, most_ranks));
  ProductSize const equal{ranks, ranks, ranks}; // whose size is chosen behind the grid
  ProductChoice const choice = choose_products(equal, ranks, {name}, grid).choices.front();
  ProductSize const size = small_product_size(choice.grid);
  ProductWalk const walk = walk_product(choice.algorithm, choice.grid, size);
  BusiestProductRank const busiest = count_busiest(choice.algorithm, choice.grid, size);
  fmt::print("{}",
             arguments.pipeline.json ? product_walk_json(name, walk, busiest) : product_walk_text(name, walk, busiest));
  return 0;
}

} // namespace trainstone
