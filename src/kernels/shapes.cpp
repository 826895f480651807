#include "kernels/shapes.hpp"

#include "core/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace trainstone::Impl {

void require_same_shape(char const* what, std::span<Index const> shape, std::span<Index const> expected) {
  TRAINSTONE_REQUIRE(std::ranges::equal(shape, expected), "{} has shape ({}), expected ({})", what,
                     fmt::join(shape, ", "), fmt::join(expected, ", "));
}

} // namespace trainstone::Impl
