#include "lectures/lecture_optimizer.hpp"

#include <fmt/format.h>

namespace trainstone {

namespace {

std::string steps_table(TaughtOptimizer const& lecture) {
  std::string text =
      "1. What a step of Adam adds to a parameter, in units of the learning rate; its gradient is always g\n";
  text += "  both:      m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2\n"
          "  as taught: w = w - lr m / sqrt(v) x g\n"
          "  exact, as published: w = w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)\n";
  text += fmt::format("  {:>8} {:>8} {:>14} {:>14}\n", "g", "step t", "as taught", "published");
  for (AdamRow const& row : lecture.steps)
    text += fmt::format("  {:>8} {:>8} {:>14.4f} {:>14.4f}\n", row.gradient, row.step, row.taught, row.published);
  return text +
         fmt::format(
             "  b1 = {}, b2 = {}, eps = {}\n"
             "  Note: one slide multiplies the step with an extra g_t and corrects no bias. With the extra g_t a "
             "constant gradient moves\n  the parameter down whatever its sign is, by less the smaller it is; "
             "without the correction the first steps are too long.\n  Adam as published moves against the gradient "
             "by the learning rate. This program has Adam as published.\n\n",
             taught_beta1, taught_beta2, taught_epsilon);
}

std::string worked_table(TaughtOptimizer const& lecture) {
  constexpr auto line = "  {:<15} {:<38} {:<24} {:>12} {:>13}\n";
  std::string text = fmt::format("2. Two steps of a parameter w = 1 with gradient {}, learning rate {}, decay {}\n",
                                 worked_gradient, worked_rate, worked_decay);
  text += fmt::format(line, "optimizer", "a step takes", "where", "after step 1", "after step 2");
  for (WorkedRow const& row : lecture.worked)
    text += fmt::format(line, row.optimizer, row.rule, row.source, fmt::format("{:.6f}", row.after[0]),
                        fmt::format("{:.6f}", row.after[1]));
  return text +
         fmt::format("  mu = b1 = {}; m' = m / (1 - b1^t), v' = v / (1 - b2^t)\n"
                     "  Note: a first step of Adam as published has the length of the learning rate, whatever the "
                     "gradient is; in adam it hides the\n  decay, which adamw adds past the moments.\n\n",
                     worked_momentum);
}

std::string states_table(TaughtOptimizer const& lecture) {
  std::string text = "3. Bytes of training state per parameter\n";
  text += fmt::format("  {:<15} {:<13} {:>8} {:>10}", "", "", "", "as taught");
  for (std::size_t i = 0; i < optimizer_state_recipes.size(); ++i) text += fmt::format(" {:>14}", "exact");
  text += fmt::format("\n  {:<15} {:<13} {:>8} {:>10}", "optimizer", "kept in fp32", "bytes", "all");
  for (RecipeName const recipe : optimizer_state_recipes) text += fmt::format(" {:>14}", to_string(recipe));
  text += "\n";
  for (OptimizerStateRow const& row : lecture.states) {
    text += fmt::format("  {:<15} {:<13} {:>8} {:>10}", row.optimizer, row.moments, row.moment_bytes,
                        row.taught.empty() ? "-" : row.taught);
    for (std::int64_t const bytes : row.total) text += fmt::format(" {:>14}", bytes);
    text += "\n";
  }
  return text +
         "  Note: the lectures count 16 and 20 bytes with Adam. A recipe's bytes are parameters, gradients, the fp32 "
         "master copy and\n  the moments; mixed20 has a copy of the gradients in fp32, too. A penalty lambda |w|^2 in "
         "the loss adds 2 lambda w to the\n  gradient: optimizer.weight_decay = 2 lambda with sgd and adam; adamw "
         "takes decay x w past the moments instead.\n";
}

} // namespace

std::string lecture_optimizer_text(TaughtOptimizer const& lecture) {
  return steps_table(lecture) + worked_table(lecture) + states_table(lecture);
}

} // namespace trainstone
