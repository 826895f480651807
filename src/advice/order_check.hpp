#pragma once

// Whether measured times have the order that was predicted. Owns which ways are run, the comparison of orders, and the
// least correlation that counts as agreement. Pure.

#include "advice/advice.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace trainstone {

/// Kendall's tau-b of two lists of the same length: 1: the same order, -1: the opposite one. Pairs that are equal in
/// one list count for neither. 0 if all values of a list are equal. Complexity: O(n^2).
/// \throws Error unless both have the same length, of at least 2. Source: A New Measure of Rank Correlation, 1938.
double kendall_tau(std::vector<double> const& a, std::vector<double> const& b);

inline constexpr double least_tau = 0.7;

/// Numbers of played ways, ascending, whose predicted times are spread evenly in their logarithm.
/// \return at most `count`, all different
std::vector<std::size_t> spread_choices(std::vector<RankedWay> const& ranked, std::size_t count);

struct CheckedWay {
  RankedWay way;
  double measured = 0; ///< s: median step
};

struct RankedOrder {
  std::vector<CheckedWay> ways; ///< in predicted order
  double tau = 0;
  std::size_t worst = 0; ///< the way whose measured time is furthest from predicted time x `scale`
  double scale = 1;      ///< the median of measured over predicted

  bool passes() const { return tau >= least_tau; }
};

/// \throws Error with fewer than two ways
RankedOrder check_order(std::vector<CheckedWay> ways);

/// A table, lines with their ends.
std::string order_check_text(RankedOrder const& check);

} // namespace trainstone
