#pragma once

// The explanation of a distributed product: who has which block after every phase, and what that costs, as text and as
// JSON. Pure.

#include "products/plan/product_counts.hpp"
#include "products/plan/product_walk.hpp"

#include <string>

namespace trainstone {

/// \param[in] name  "3d"
std::string product_walk_text(std::string const& name, ProductWalk const& walk, BusiestProductRank const& busiest);
std::string product_walk_json(std::string const& name, ProductWalk const& walk, BusiestProductRank const& busiest);

} // namespace trainstone
