#pragma once

// Least squares with coefficients that may not be negative, for a handful of unknowns. Pure; owns nothing.

#include <vector>

namespace trainstone::Impl {

using Column = std::vector<double>;

/// The x >= 0 that minimises |sum of x[k] columns[k] - target|; 0 for columns that add nothing to the others.
/// Source: Lawson and Hanson, Solving Least Squares Problems, 1974, chapter 23; on the normal equations of columns
/// scaled to length one, so that their conditioning is squared: about half of the digits are right.
/// \param[in] columns of target.size() finite values each
std::vector<double> non_negative_least_squares(std::vector<Column> const& columns, Column const& target);

} // namespace trainstone::Impl
