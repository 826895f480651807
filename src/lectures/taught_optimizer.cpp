#include "lectures/taught_optimizer.hpp"

#include "parallel/plan/recipe.hpp"

#include <cmath>
#include <utility>

namespace trainstone {

namespace {

/// The moments of Adam, and what a step makes of them, in units of the learning rate.
struct Moments {
  double mean = 0, square = 0;
  int step = 0;

  void add(double gradient) {
    mean = taught_beta1 * mean + (1 - taught_beta1) * gradient;
    square = taught_beta2 * square + (1 - taught_beta2) * gradient * gradient;
    ++step;
  }
  double taught(double gradient) const { return mean / std::sqrt(square) * gradient; }
  double published() const {
    double const corrected_mean = mean / (1 - std::pow(taught_beta1, step));
    double const corrected_square = square / (1 - std::pow(taught_beta2, step));
    return corrected_mean / (std::sqrt(corrected_square) + taught_epsilon);
  }
};

/// Takes `last` steps with the same gradient and keeps what the last one adds.
AdamRow adam_row(double gradient, int last) {
  Moments moments;
  while (moments.step < last) moments.add(gradient);
  return {gradient, last, -moments.taught(gradient), -moments.published()};
}

/// \param[in] step  (parameter) -> what a step takes from it, in units of the learning rate
template <class Step>
WorkedRow worked_row(std::string optimizer, std::string rule, std::string source, Step step) {
  WorkedRow row{std::move(optimizer), std::move(rule), std::move(source), {}};
  double parameter = 1;
  for (double& after : row.after) after = parameter -= worked_rate * step(parameter);
  return row;
}

std::vector<WorkedRow> worked_rows() {
  constexpr double g = worked_gradient;
  auto const moments_of = [](auto const& gradient_of, auto const& step_of) {
    return [=, moments = Moments()](double w) mutable {
      moments.add(gradient_of(w));
      return step_of(moments, w);
    };
  };
  auto const plain = [](double) { return g; };
  auto const decayed = [](double w) { return g + worked_decay * w; };
  auto const published = [](Moments const& moments, double) { return moments.published(); };
  auto const momentum = [velocity = 0.0](double) mutable { return velocity = worked_momentum * velocity + g; };
  return {
      worked_row("sgd", "lr g", "this program", plain),
      worked_row("sgd, momentum", "lr u, u = mu u + g", "this program", momentum),
      worked_row("sgd, decay", "lr (g + decay w)", "this program", decayed),
      worked_row("adam", "lr m / sqrt(v) x g", "as taught",
                 moments_of(plain, [](Moments const& moments, double) { return moments.taught(g); })),
      worked_row("adam", "lr m' / (sqrt(v') + eps)", "published, this program", moments_of(plain, published)),
      worked_row("adam, decay", "the same of g + decay w", "this program", moments_of(decayed, published)),
      worked_row(
          "adamw", "lr (m' / (sqrt(v') + eps) + decay w)", "published, this program",
          moments_of(plain, [](Moments const& moments, double w) { return moments.published() + worked_decay * w; })),
  };
}

OptimizerStateRow state_row(std::string const& name, std::string const& moments, std::string const& taught,
                            OptimizerConfig const& optimizer) {
  OptimizerStateRow row{name, moments, taught, recipe(RecipeName::fp32, optimizer).optimizer, {}};
  for (std::size_t i = 0; i < optimizer_state_recipes.size(); ++i)
    row.total[i] = recipe(optimizer_state_recipes[i], optimizer).total();
  return row;
}

} // namespace

TaughtOptimizer compare_taught_optimizer() {
  TaughtOptimizer lecture;
  for (double const gradient : {1.0, -1.0, 0.01})
    for (int const step : {1, 10, 1000}) lecture.steps.push_back(adam_row(gradient, step));
  lecture.worked = worked_rows();
  OptimizerConfig descent, momentum, adam;
  descent.type = momentum.type = OptimizerType::sgd;
  descent.momentum = 0;
  momentum.momentum = taught_beta1;
  adam.type = OptimizerType::adam;
  lecture.states = {state_row("sgd", "nothing", "", descent), state_row("sgd, momentum", "velocity", "", momentum),
                    state_row("adam, adamw", "two moments", "16, 20", adam)};
  return lecture;
}

} // namespace trainstone
