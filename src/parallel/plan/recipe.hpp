#pragma once

// Bytes of the training state: how much a precision recipe keeps per parameter, and how much of it one rank holds under
// ZeRO. Plain values that plans and lectures share, so that there is one formula. Owns no memory; knows nothing of
// padding, buffers or activations.
// Source: ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, arXiv:1910.02054.

#include "core/error.hpp"
#include "parallel/plan/config.hpp"

#include <concepts>
#include <cstdint>

namespace trainstone {

/// Bytes per parameter.
struct Recipe {
  std::int64_t parameter; ///< that the model computes with
  std::int64_t gradient;
  std::int64_t optimizer; ///< fp32: moments; of mixed recipes the master copy; of mixed20 a copy of the gradient

  constexpr std::int64_t total() const { return parameter + gradient + optimizer; }
};

constexpr Recipe recipe(RecipeName name, OptimizerConfig const& optimizer = {}) {
  std::int64_t const moments = 4 * optimizer.moments();
  switch (name) {
  case RecipeName::fp32: return {4, 4, moments};
  case RecipeName::mixed16: return {2, 2, 4 + moments};
  case RecipeName::mixed18: return {2, 4, 4 + moments};
  case RecipeName::mixed20: return {2, 2, 4 + moments + 4};
  }
  return {};
}

/// The types in which a run stores its state. Moments are always fp32.
struct StateTypes {
  Storage parameters = Storage::fp32; ///< that the model computes with; activations, too
  Storage gradients = Storage::fp32;
  bool master = false;        ///< an fp32 copy of the parameters, which is what is updated
  bool gradient_copy = false; ///< an fp32 copy of the gradients, which the update reads
};

inline StateTypes state_types(PrecisionConfig const& precision) {
  Recipe const found = recipe(precision.recipe);
  if (found.parameter == 4) return {};
  return {precision.storage, found.gradient == 2 ? precision.storage : Storage::fp32, true,
          precision.recipe == RecipeName::mixed20};
}

/// The stages of ZeRO: 0 = plain data parallelism, 1 shards the optimizer's state, 2 gradients too, 3 parameters too.
inline constexpr int most_zero_stages = 4;

/// Bytes, or other amounts, of the three kinds of state.
template <class Number>
struct StateBytes {
  Number parameters;
  Number gradients;
  Number optimizer;

  constexpr Number total() const { return parameters + gradients + optimizer; }
};

/// The state that each of `ranks` ranks holds all the time. std::int64_t counts allocated bytes; double is for the
/// parameters of a lecture, which are not padded.
/// \param[in] stage 0 to 3    \param[in] ranks a divisor of `parameters`, if these are integers
template <class Number>
  requires std::same_as<Number, std::int64_t> || std::same_as<Number, double>
constexpr StateBytes<Number> state_bytes(Recipe const& recipe, int stage, Number parameters, Number ranks) {
  TRAINSTONE_REQUIRE(0 <= stage && stage < most_zero_stages, "ZeRO has stages 0 to 3, and no stage {}", stage);
  TRAINSTONE_REQUIRE(ranks > 0, "{} ranks", ranks);
  if constexpr (std::same_as<Number, std::int64_t>)
    TRAINSTONE_REQUIRE(parameters % ranks == 0, "{} parameters are no multiple of {} ranks", parameters, ranks);
  auto const bytes = [&](std::int64_t per_parameter, bool sharded) {
    return static_cast<Number>(per_parameter) * (sharded ? parameters / ranks : parameters);
  };
  return {bytes(recipe.parameter, stage >= 3), bytes(recipe.gradient, stage >= 2), bytes(recipe.optimizer, stage >= 1)};
}

} // namespace trainstone
