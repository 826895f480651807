#pragma once

// Comparison of tables of numbers in tests: CHECK(mismatches(...) == "") prints the first indices with both values.

#include "support/numerics.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <span>
#include <string>

namespace trainstone::test {

/// Empty if |actual - expected| <= bound(expected) everywhere; else how many differ, and the first five of them.
template <class Actual, class Expected, class Bound>
std::string mismatches(std::span<Actual const> actual, std::span<Expected const> expected, Bound const& bound) {
  if (actual.size() != expected.size()) return fmt::format("{} elements, expected {}", actual.size(), expected.size());
  std::size_t count = 0;
  std::string first;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    double const value = static_cast<double>(actual[i]);
    double const wanted = static_cast<double>(expected[i]);
    double const limit = bound(wanted);
    note_error(std::abs(value - wanted), limit);
    if (std::abs(value - wanted) <= limit) continue; // false for NaN
    if (++count <= 5)
      first += fmt::format("\n  [{}] {:.17g}, expected {:.17g}, difference {:.3g} > {:.3g}", i, value, wanted,
                           value - wanted, limit);
  }
  return count == 0 ? "" : fmt::format("{} of {} differ:{}", count, actual.size(), first);
}

/// The same within one absolute bound.
template <class Actual, class Expected>
std::string mismatches(std::span<Actual const> actual, std::span<Expected const> expected, double bound) {
  return mismatches(actual, expected, [bound](double) { return bound; });
}

/// max |x|
template <class Value>
double largest(std::span<Value const> values) {
  double result = 0;
  for (Value const value : values) result = std::fmax(result, std::abs(static_cast<double>(value)));
  return result;
}

} // namespace trainstone::test
