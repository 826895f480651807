#pragma once

// Parameters, their state and their gradients, in all types in which updates take them.

#include "core/types.hpp"
#include "kernels/optimizer.hpp"
#include "support/compare.hpp"
#include "support/views.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

namespace trainstone::test {

template <class GradientType, class ParameterType>
struct Storage {
  using Gradient = GradientType;
  using Parameter = ParameterType;
};
using Storages = std::tuple<Storage<float, float>, Storage<bf16, bf16>, Storage<fp16, fp16>, Storage<float, bf16>,
                            Storage<float, fp16>>;

inline AdamStep adam_step(std::int64_t step) {
  return {.learning_rate = 0.01F,
          .beta1 = 0.9F,
          .beta2 = 0.95F,
          .epsilon = 1e-8F,
          .weight_decay = 0.1F,
          .gradient_scale = 0.5F,
          .step = step};
}

/// Parameters and two states on the device and, in fp64, of the reference.
template <class Parameter>
struct State {
  explicit State(Index count)
      : master(random_values(count, 1)),
        first(count, 0.0F),
        second(count, 0.0F),
        rounded(std::is_same_v<Parameter, float> ? 0 : count, Parameter{}),
        expected(test::widened(random_values(count, 1))),
        expected_first(expected.size()),
        expected_second(expected.size()) {}

  Vector<Parameter> parameter() const {
    if constexpr (std::is_same_v<Parameter, float>)
      return master.vector();
    else
      return rounded.vector();
  }

  /// Whether the parameters are the master copy, rounded once.
  bool is_rounded_master() const {
    std::vector<float> const values = master.values();
    if constexpr (std::is_same_v<Parameter, float>)
      return true;
    else
      return std::ranges::equal(rounded.values(), cast_to<Parameter>(values), {}, &Parameter::bits, &Parameter::bits);
  }

  template <class T>
  static std::vector<T> cast_to(std::vector<float> const& values) {
    std::vector<T> result;
    for (float const value : values) result.push_back(from_float<T>(value));
    return result;
  }

  DeviceTensor<float> master, first, second;
  DeviceTensor<Parameter> rounded;
  std::vector<double> expected, expected_first, expected_second;
};

/// Gradients of a step as they are stored, and what they stand for. Their size is 0.5 to 2, so that with a decay of at
/// most 0.2 none comes near to zero, where Adam's direction depends on the last bit.
template <class T>
struct Gradients {
  Gradients(Index count, std::int64_t step) : values(make(count, step)), stored(values) {}

  static std::vector<T> make(Index count, std::int64_t step) {
    std::vector<T> result;
    for (float const value : random_values(count, 10 + static_cast<std::uint64_t>(step), -1.5, 1.5))
      result.push_back(from_float<T>(value + std::copysign(0.5F, value)));
    return result;
  }
  std::vector<double> widened() const {
    std::vector<double> result;
    for (T const value : values) result.push_back(static_cast<double>(to_float(value)));
    return result;
  }

  std::vector<T> values;
  DeviceTensor<T> stored;
};

} // namespace trainstone::test
