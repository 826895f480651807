#include "result/golden_checks.hpp"

#include "model/parameter_table.hpp"
#include "result/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

double relative_error(double value, double expected) {
  return value == expected ? 0 : std::abs(value - expected) / std::abs(expected);
}

/// The larger one; not a number if either is none, so that it fails every bound.
double larger(double a, double b) { return std::isnan(a) || b < a ? a : b; }

struct Worst {
  double error = 0;
  std::size_t place = 0;
};

Worst worst_of(std::span<double const> values, std::span<double const> expected) {
  Worst worst;
  for (std::size_t i = 0; i < std::min(values.size(), expected.size()); ++i) {
    double const error = larger(worst.error, relative_error(values[i], expected[i]));
    if (std::isnan(error)) return {error, i};
    if (error != worst.error) worst = {error, i};
  }
  return worst;
}

GoldenBounds bounds_of(GoldenCurve const& golden, GoldenComparison const& run) {
  if (run.is_bf16_of_fp32 && golden.bounds_of_bf16) return *golden.bounds_of_bf16;
  GoldenBounds const usual = golden_bounds(run.products);
  GoldenBounds bounds = golden.bounds.value_or(usual);
  if (run.products == Products::exact) return bounds;
  bounds.losses = std::max(bounds.losses, usual.losses);
  bounds.norms = std::max(bounds.norms, usual.norms);
  bounds.changes = std::max(bounds.changes, usual.changes);
  return bounds;
}

Check of_another_length(std::string name, std::size_t found, std::size_t wanted, std::string detail) {
  return {std::move(name), false, static_cast<double>(found), static_cast<double>(wanted), std::move(detail)};
}

/// The mean of the last steps, of those behind the early ones; the check shows the bound that fails, or else the first.
void compare_last(Check& check, std::span<double const> losses, std::span<double const> expected, std::size_t first) {
  std::size_t const last = std::min<std::size_t>(losses.size() - first, golden_last_steps);
  if (last == 0) return;
  double const error = relative_error(mean(losses.last(last)), mean(expected.last(last)));
  check.detail += fmt::format(", mean of the last {} within {:.2e}", last, error);
  if (!check.passed || error <= golden_last_bound) return;
  check.value = error;
  check.limit = golden_last_bound;
  check.passed = false;
}

Check compare_losses(GoldenCurve const& golden, GoldenComparison const& run, double bound) {
  std::size_t const count = std::min(golden.losses.size(), run.losses.size());
  bool const comparable = count > 0 && (golden.losses.size() == run.losses.size() || run.may_stop_early);
  if (!comparable)
    return of_another_length(
        "loss-curve", run.losses.size(), golden.losses.size(),
        fmt::format("the run has {} steps, the golden curve {}", run.losses.size(), golden.losses.size()));
  std::size_t const first = std::min<std::size_t>(count, early_steps);
  auto const expected = std::span(golden.losses).first(count), losses = run.losses.first(count);
  double const error = worst_of(losses.first(first), expected).error;
  Check check{"loss-curve", error <= bound, error, bound,
              fmt::format("first {} steps within {:.2e} of the golden curve", first, error)};
  compare_last(check, losses, expected, first);
  return check;
}

Check compare_norms(GoldenCurve const& golden, GoldenComparison const& run, double bound) {
  std::vector<double> const &expected = golden.early.norms, &norms = run.early.norms;
  std::size_t const count = std::min(expected.size(), norms.size());
  if (count == 0 || (expected.size() != norms.size() && !run.may_stop_early))
    return of_another_length("gradient-norms", norms.size(), expected.size(),
                             fmt::format("{} norms are known, {} are golden", norms.size(), expected.size()));
  Worst const worst = worst_of(norms, expected);
  return {"gradient-norms", worst.error <= bound, worst.error, bound,
          fmt::format("first {} steps, largest difference in step {}", count, worst.place + 1)};
}

Check compare_changes(GoldenCurve const& golden, GoldenComparison const& run, double bound) {
  EarlySteps const &expected = golden.early, &early = run.early;
  if (early.changes.size() != expected.changes.size() || early.changed_after != expected.changed_after)
    return of_another_length("parameter-changes", static_cast<std::size_t>(early.changed_after),
                             static_cast<std::size_t>(expected.changed_after),
                             fmt::format("changes are known after {} steps (0: unknown), golden after {}",
                                         early.changed_after, expected.changed_after));
  Worst const worst = worst_of(early.changes, expected.changes);
  return {"parameter-changes", worst.error <= bound, worst.error, bound,
          fmt::format("mean of {} kinds after {} steps, largest difference in {}", early.changes.size(),
                      early.changed_after, to_string(static_cast<Tensor>(worst.place)))};
}

} // namespace

// Measured with inputs/tiny.toml and inputs/quickstart.toml, first ten steps; the largest relative difference of each
// kind:
//
//                                                                        losses   norms    changes
//   fp32: 1, 2, 4 ranks, ddp, zero 1 and 3, hsdp, both attentions,
//   products of oneDNN and of Kokkos, micro-batches of 1 to 8            1.3e-7   3.7e-8   5.4e-7
//   bf16: the same                                                       2.1e-5   5.5e-4   2.9e-4
//   bf16 or fp16 instead of fp32, bf16 instead of fp16                   4.3e-4   5.5e-3   1.4e-3
//   fp32 without weight decay                                            2.0e-5   6.9e-5   4.2e-4
//   fp32 with ten times the epsilon                                      7.7e-6   8.5e-5   2.3e-2
//   fp32 with half the learning rate                                     3.4e-2   4.5e-1   5.2e-1
//
// In fp32 norms and changes have the geometric mean between what is right and what is wrong; losses, which amplify most
// in later steps of other decks, have one that sees gross faults alone. Rounded products see no missing weight decay.
GoldenBounds golden_bounds(Products products) {
  if (products == Products::exact) return {.losses = 1e-5, .norms = 2e-6, .changes = 2e-5, .derived_from = {}};
  return {.losses = 1e-3, .norms = 1e-2, .changes = 5e-3, .derived_from = {}};
}

std::vector<Check> compare_with_golden(GoldenCurve const& golden, GoldenComparison const& run) {
  GoldenBounds const bounds = bounds_of(golden, run);
  std::vector<Check> checks{compare_losses(golden, run, bounds.losses)};
  if (run.has_norms && !golden.early.norms.empty()) checks.push_back(compare_norms(golden, run, bounds.norms));
  if (!golden.early.changes.empty()) checks.push_back(compare_changes(golden, run, bounds.changes));
  return checks;
}

} // namespace trainstone
