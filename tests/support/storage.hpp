#pragma once

// The storage types in tests: lists for TEMPLATE_LIST_TEST_CASE, how far storing a value may move it, and values as
// they are after having been stored.

#include "core/types.hpp"

#include <cmath>
#include <tuple>
#include <type_traits>
#include <vector>

namespace trainstone::test {

/// Types of parameters and activations, and of gradients of parameters.
template <class T, class GradientOfParameters>
struct Stored {
  using Storage = T;
  using Gradient = GradientOfParameters;
};

using StorageTypes = std::tuple<float, bf16, fp16>;
using StorageAndGradientTypes =
    std::tuple<Stored<float, float>, Stored<bf16, bf16>, Stored<bf16, float>, Stored<fp16, fp16>, Stored<fp16, float>>;

/// How far a result in fp32 of this magnitude moves when it is stored: half a unit of the last of 8 bits (bf16) or 11
/// bits (fp16, or of its subnormal numbers 2^-24 apart); not at all as fp32.
template <class T>
double storing_error(double magnitude) {
  if constexpr (std::is_same_v<T, bf16>)
    return 0x1p-8 * std::abs(magnitude);
  else if constexpr (std::is_same_v<T, fp16>)
    return 0x1p-11 * std::abs(magnitude) + 0x1p-25;
  else
    return 0;
}

/// A bound for mismatches(): of a result in fp32 that is off by `error` and then stored.
template <class T>
auto stored_within(double error) {
  return [error](double value) { return error + storing_error<T>(std::abs(value) + error); };
}

/// The same of a result whose larger part, at most `addend` away from it, was stored before the rest was added.
template <class T>
auto added_after_storing_within(double error, double addend) {
  return [=](double value) {
    double const first = error + storing_error<T>(std::abs(value) + addend + error);
    return first + storing_error<T>(std::abs(value) + first);
  };
}

template <class T>
std::vector<T> stored(std::vector<float> const& values) {
  std::vector<T> result;
  for (float const value : values) result.push_back(from_float<T>(value));
  return result;
}

template <class T>
std::vector<double> widened(std::vector<T> const& values) {
  std::vector<double> result;
  for (T const value : values) result.push_back(static_cast<double>(to_float(value)));
  return result;
}

} // namespace trainstone::test
