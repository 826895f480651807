#pragma once

// `estimate --lecture matmul`: ways to distribute a matrix product, closed forms beside counts. Owns the text only; the
// figures are lectures/taught_products.hpp's.

#include "lectures/taught_products.hpp"

#include <string>

namespace trainstone {

/// All tables, lines with their ends.
std::string lecture_products_text(TaughtProducts const& lecture);

} // namespace trainstone
