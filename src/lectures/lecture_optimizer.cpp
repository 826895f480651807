#include "lectures/lecture_optimizer.hpp"

#include <fmt/format.h>

namespace trainstone {

namespace {

std::string steps_table(TaughtOptimizer const& lecture) {
  std::string text =
      "1. What a step of Adam adds to a parameter, in units of the learning rate; its gradient is always g\n";
  text += "  both:      m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2\n"
          "  as taught: w = w - lr m / sqrt(v) x g\n"
          "  published: w = w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)\n";
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

std::string states_table(TaughtOptimizer const& lecture) {
  std::string text = "2. Bytes of training state per parameter\n";
  text += fmt::format("  {:<15} {:<13} {:>8}", "optimizer", "kept in fp32", "bytes");
  for (RecipeName const recipe : optimizer_state_recipes) text += fmt::format(" {:>14}", to_string(recipe));
  text += "\n";
  for (OptimizerStateRow const& row : lecture.states) {
    text += fmt::format("  {:<15} {:<13} {:>8}", row.optimizer, row.moments, row.moment_bytes);
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
  return steps_table(lecture) + states_table(lecture);
}

} // namespace trainstone
