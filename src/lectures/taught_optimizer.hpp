#pragma once

// Adam as one slide has it, beside Adam as published, and what the state of each optimizer takes. Owns both updates of
// one number in fp64; bytes are parallel/plan/recipe.hpp's. The optimizer of a training is kernels/optimizer.hpp. Pure;
// renders no text (lectures/lecture_optimizer.hpp).
// Source: Adam: A Method for Stochastic Optimization, arXiv:1412.6980.

#include "parallel/plan/config.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace trainstone {

/// Of the published algorithm.
inline constexpr double taught_beta1 = 0.9;
inline constexpr double taught_beta2 = 0.999;
inline constexpr double taught_epsilon = 1e-8;

/// What one step adds to a parameter whose gradient has been the same in all steps, divided by the learning rate.
struct AdamRow {
  double gradient = 0;
  int step = 0; ///< from 1
  double taught = 0;
  double published = 0;
};

inline constexpr std::array<RecipeName, 3> optimizer_state_recipes{RecipeName::fp32, RecipeName::mixed16,
                                                                   RecipeName::mixed20};

/// Bytes per parameter.
struct OptimizerStateRow {
  std::string optimizer;
  std::string moments; ///< what is kept from step to step, beside the parameters
  std::int64_t moment_bytes = 0;
  std::array<std::int64_t, 3> total{}; ///< of all state, under optimizer_state_recipes
};

struct TaughtOptimizer {
  std::vector<AdamRow> steps;
  std::vector<OptimizerStateRow> states;
};

TaughtOptimizer compare_taught_optimizer();

} // namespace trainstone
