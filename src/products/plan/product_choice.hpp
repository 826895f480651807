#pragma once

// The ways to distribute a product that lectures teach, under their names, and the grids that each takes on a number of
// ranks. Owns the choice of a grid where the user leaves it open. Pure.

#include "products/plan/product.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// "1d", "summa", "cannon", "2.5d", "3d".
std::span<std::string_view const> product_names();

struct ProductChoice {
  std::string name;
  ProductAlgorithm algorithm = ProductAlgorithm::grid;
  ProductGrid grid;
};

struct ProductChoices {
  std::vector<ProductChoice> choices;
  std::vector<std::string> left_out; ///< why
};

/// "2x1x2" and "2,1,2"; nothing for "auto". \throws InputError for anything else
std::optional<ProductGrid> parse_product_grid(std::string const& text);

/// 1d: all ranks along one axis. summa, cannon: q x 1 x q. 2.5d: q x c x q, where c > 1 divides q. 3d: every box.
/// \throws InputError for an unknown name
std::vector<ProductGrid> legal_product_grids(std::string_view name, Rank ranks);

/// The ways with these names, on this grid, or on the legal one on which the busiest rank sends least. Without names:
/// all that are legal.
/// \throws InputError if a name is unknown, or one that is given has no grid on so many ranks, or does not take this
/// one, with what is legal; and if no way takes the grid
ProductChoices choose_products(ProductSize const& size, Rank ranks, std::vector<std::string> const& names,
                               std::optional<ProductGrid> const& grid);

} // namespace trainstone
