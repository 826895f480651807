#pragma once

// Golden curves: loss curves of trusted runs, one file per deck (golden/NAME.json beside the deck), one curve per
// golden key; and for trainings that are too long for a trusted run the loss that they begin with, from a reference.
// Owns the file's form and the bounds of curves. Who may record one is the user's decision.

#include "report/output.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trainstone {

struct GoldenCurve {
  std::vector<double> losses; ///< training loss of every step
  std::string recorded_with;  ///< version, variant and ranks, for people
};

/// The loss of the first positions of a training's first sample, before any update, as `verify --first-step` computes
/// it.
struct GoldenFirstStep {
  double loss = 0;
  std::int64_t positions = 0;
  std::string recorded_with; ///< for people
};

/// inputs/quickstart.toml -> inputs/golden/quickstart.json
std::string golden_path(std::string const& deck_path);

/// The curve of this key, if the file exists and has it. \throws InputError if the file is damaged
std::optional<GoldenCurve> find_golden_curve(std::string const& path, std::string const& key);

/// The same of a first step.
std::optional<GoldenFirstStep> find_golden_first_step(std::string const& path, std::string const& key);

/// Adds or replaces the curve of this key and keeps the others; makes file and folder. \throws InputError
void record_golden_curve(std::string const& path, std::string const& key, GoldenCurve const& curve);
void record_golden_first_step(std::string const& path, std::string const& key, GoldenFirstStep const& first);

/// Bounds: CPUs, compilers and numbers of ranks add up in different orders, and training amplifies that.
inline constexpr std::int64_t golden_first_steps = 10;
inline constexpr double golden_first_bound = 1e-3; ///< relative, on each of the first steps
inline constexpr std::int64_t golden_last_steps = 10;
inline constexpr double golden_last_bound = 2e-2; ///< relative, on the mean of the last steps

/// The check "loss-curve". The first bound holds on the first ten steps; the second on the mean of the last ten of
/// the steps after them, if there are any. Curves of different length fail, unless the training may stop early
/// (data.stop_loss): then both are compared over the shorter length.
Check compare_with_golden(GoldenCurve const& golden, std::span<double const> losses, bool may_stop_early);

} // namespace trainstone
