#pragma once

// A distributed product, played on names instead of numbers: which rank has which blocks of A, B and C after every
// phase. Promises: an operand that a product does not fit, a term that is added twice and a C that is not complete are
// found. For ranks and sizes that a reader can follow. Pure.

#include "products/plan/product.hpp"

#include <string>
#include <vector>

namespace trainstone {

/// What a rank holds of a block of an operand.
struct HeldPart {
  Operand operand = Operand::a;
  Index row = 0, column = 0;    ///< the block among the operand's blocks
  Index held = 0, elements = 0; ///< how many of the block's elements
  std::vector<Index> terms;     ///< of C: the blocks of the inner dimension that are added up so far, ascending
  bool operator==(HeldPart const&) const = default;
};

struct ProductMoment {
  std::string what;                        ///< "A along x: all_gather direct"
  std::vector<std::vector<HeldPart>> held; ///< by rank; parts of A, then B, then C
};

struct ProductWalk {
  ProductAlgorithm algorithm = ProductAlgorithm::grid;
  ProductGrid grid;
  ProductSize size;                   ///< padded where the algorithm pads
  Index inner_blocks = 1;             ///< into how many the inner dimension is cut
  std::vector<ProductMoment> moments; ///< the first one: at the start
};

/// A size whose blocks and shares are equal on this grid.
ProductSize small_product_size(ProductGrid const& grid);

/// \throws InputError as plan_product(), or for more than 64 ranks
ProductWalk walk_product(ProductAlgorithm algorithm, ProductGrid const& grid, ProductSize const& size);
/// \param[in] plans  of all ranks, at most 64    \throws Error if they do not give the product, with the reason
ProductWalk walk_plans(std::vector<ProductPlan> plans);

} // namespace trainstone
