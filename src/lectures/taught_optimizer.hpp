#pragma once

// Adam as one slide has it, beside Adam as published and the other optimizers, and what the state of each takes. Owns
// the updates of one number in fp64; bytes are parallel/plan/recipe.hpp's. The optimizers of a training are
// kernels/optimizer.hpp. Pure; renders no text (lectures/lecture_optimizer.hpp).
// Sources: Adam: A Method for Stochastic Optimization, arXiv:1412.6980; Decoupled Weight Decay Regularization,
// arXiv:1711.05101.

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

/// A parameter that is 1 at first, and has the same gradient in all steps.
inline constexpr double worked_rate = 0.1, worked_decay = 0.1, worked_gradient = 0.5, worked_momentum = taught_beta1;

/// Where it is after each of two steps.
struct WorkedRow {
  std::string optimizer;
  std::string rule; ///< what a step takes from the parameter
  std::string source;
  std::array<double, 2> after{};
};

inline constexpr std::array<RecipeName, 3> optimizer_state_recipes{RecipeName::fp32, RecipeName::mixed16,
                                                                   RecipeName::mixed20};

/// Bytes per parameter.
struct OptimizerStateRow {
  std::string optimizer;
  std::string moments; ///< what is kept from step to step, beside the parameters
  std::string taught;  ///< of all state; empty: not taught
  std::int64_t moment_bytes = 0;
  std::array<std::int64_t, 3> total{}; ///< of all state, under optimizer_state_recipes
};

struct TaughtOptimizer {
  std::vector<AdamRow> steps;
  std::vector<WorkedRow> worked;
  std::vector<OptimizerStateRow> states;
};

TaughtOptimizer compare_taught_optimizer();

} // namespace trainstone
