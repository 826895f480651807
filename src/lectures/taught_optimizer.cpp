#include "lectures/taught_optimizer.hpp"

#include "parallel/plan/recipe.hpp"

#include <cmath>

namespace trainstone {

namespace {

/// Takes `last` steps with the same gradient and keeps what the last one adds.
AdamRow adam_row(double gradient, int last) {
  double mean = 0, square = 0;
  AdamRow row{gradient, last, 0, 0};
  for (int step = 1; step <= last; ++step) {
    mean = taught_beta1 * mean + (1 - taught_beta1) * gradient;
    square = taught_beta2 * square + (1 - taught_beta2) * gradient * gradient;
    row.taught = -mean / std::sqrt(square) * gradient;
    double const corrected_mean = mean / (1 - std::pow(taught_beta1, step));
    double const corrected_square = square / (1 - std::pow(taught_beta2, step));
    row.published = -corrected_mean / (std::sqrt(corrected_square) + taught_epsilon);
  }
  return row;
}

OptimizerStateRow state_row(std::string const& name, std::string const& moments, OptimizerConfig const& optimizer) {
  OptimizerStateRow row{name, moments, recipe(RecipeName::fp32, optimizer).optimizer, {}};
  for (std::size_t i = 0; i < optimizer_state_recipes.size(); ++i)
    row.total[i] = recipe(optimizer_state_recipes[i], optimizer).total();
  return row;
}

} // namespace

TaughtOptimizer compare_taught_optimizer() {
  TaughtOptimizer lecture;
  for (double const gradient : {1.0, -1.0, 0.01})
    for (int const step : {1, 10, 1000}) lecture.steps.push_back(adam_row(gradient, step));
  OptimizerConfig descent, momentum, adam;
  descent.type = momentum.type = OptimizerType::sgd;
  descent.momentum = 0;
  momentum.momentum = taught_beta1;
  adam.type = OptimizerType::adam;
  lecture.states = {state_row("sgd", "nothing", descent), state_row("sgd, momentum", "velocity", momentum),
                    state_row("adam, adamw", "two moments", adam)};
  return lecture;
}

} // namespace trainstone
