#include "kernels/common/shapes.hpp"

#include "core/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace trainstone::Impl {

void require_same_shape(char const* what, std::span<Index const> shape, std::span<Index const> expected) {
  TRAINSTONE_REQUIRE(std::ranges::equal(shape, expected), "{} has shape ({}), expected ({})", what,
                     fmt::join(shape, ", "), fmt::join(expected, ", "));
}

void require_sequences(char const* what, Index rows, Index sequence) {
  TRAINSTONE_REQUIRE(sequence > 0 && rows % sequence == 0, "{}: {} rows are not whole sequences of {}", what, rows,
                     sequence);
}

} // namespace trainstone::Impl
