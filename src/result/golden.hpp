#pragma once

// Golden curves: records of trusted runs. There is one file per deck (golden/NAME.json beside the deck) and one curve
// per golden key. For trainings that are too long for a trusted run, the file has the loss before the first update,
// from a reference. Owns the form of the file and its digest. golden_checks.hpp compares runs with curves.
// released_curves.hpp knows the files that were released with this program. The user decides who may record a curve.

#include "train/early_steps.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// The largest relative differences between a run and a golden curve.
struct GoldenBounds {
  double losses = 0;        ///< of each of the early steps
  double norms = 0;         ///< of the gradient of each of them
  double changes = 0;       ///< of the change of each kind of parameter after them
  std::string derived_from; ///< for people
};

struct GoldenCurve {
  std::vector<double> losses; ///< training loss of every step
  std::string recorded_with;  ///< version, variant and ranks, for people
  EarlySteps early = {};
  std::optional<GoldenBounds> bounds = {};         ///< nothing: the bounds of golden_checks.hpp apply
  std::optional<GoldenBounds> bounds_of_bf16 = {}; ///< the same of runs that store bf16, where the curve is of fp32
};

/// The loss of the first positions of a training's first sample, before any update, as `verify --first-step` computes
/// it.
struct GoldenFirstStep {
  double loss = 0;
  std::int64_t positions = 0;
  std::string recorded_with;              ///< for people
  std::optional<FirstUpdate> update = {}; ///< from inputs/golden/check_float64.py
};

/// The golden records that a run is compared with.
struct GoldenEntry {
  std::optional<GoldenCurve> curve;
  std::optional<GoldenFirstStep> first_step;
  std::string digest; ///< of the whole file: 16 hexadecimal digits, as xxhsum -H3 prints; empty if there is none
};

/// inputs/quickstart.toml -> inputs/golden/quickstart.json
std::string golden_path(std::string const& deck_path);

/// The records of this key in the file, and the digest of the file. All empty if there is no file.
/// \throws InputError if the file is damaged
GoldenEntry find_golden(std::string const& path, std::string const& key);
std::optional<GoldenCurve> find_golden_curve(std::string const& path, std::string const& key);
std::optional<GoldenFirstStep> find_golden_first_step(std::string const& path, std::string const& key);

/// Adds or replaces the curve of this key and keeps the others; makes file and folder. Norms are left out if a step was
/// skipped. \throws InputError
void record_golden_curve(std::string const& path, std::string const& key, GoldenCurve const& curve);
/// An update that the file has of this key is lost.
void record_golden_first_step(std::string const& path, std::string const& key, GoldenFirstStep const& first);

/// The changes of parameters, in the form of golden files and results; null if they are not known.
nlohmann::ordered_json changes_json(EarlySteps const& early);

} // namespace trainstone
