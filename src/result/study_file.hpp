#pragma once

// A study as the tools of perf/ leave it. study.json has the planned runs, runs/NAME/result.json their results, and
// model.json, if it exists, the times of a fitted formula. Files are read strictly; nothing is computed.

#include "result/result_file.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// The value that a study keeps the same while ranks are added: tokens of a step, tokens per rank, or parameters per
/// rank. A sweep adds none: it keeps ranks and tokens of a step, and keys of the deck take several values. To a loss is
/// a sweep whose models may differ, and whose runs end at one held-out loss.
enum class StudyKind { strong, weak_batch, weak_model, sweep, to_loss };
/// "strong", "weak-batch", "weak-model", "sweep", "to-loss"
std::string to_string(StudyKind kind);
/// Whether its points are choices on one number of ranks.
constexpr bool has_choices(StudyKind kind) { return kind == StudyKind::sweep || kind == StudyKind::to_loss; }

/// A run. Points of a cell are repeats: of a number of ranks, or of a choice.
struct StudyPoint {
  std::string name;
  std::string cell = {};
  std::string choice =
      {}; ///< of studies with choices: "parallel.pipeline=2 parallel.pipeline_schedule=gpipe"; else empty
  std::int64_t ranks = 1, nodes = 1, repeat = 1;
  std::vector<std::string> overrides;
  std::optional<double> predicted_seconds;      ///< of a step
  std::optional<std::uint64_t> predicted_bytes; ///< memory of a rank
  std::optional<ResultFile> result;             ///< nothing: missing
};

/// One number of ranks in model.json.
struct ModelPoint {
  std::int64_t ranks = 1;
  std::optional<double> measured_seconds, residual; ///< nothing: predicted alone
  double seconds = 0;
  bool flagged = false;
};

struct StudyModel {
  std::string form;
  std::vector<std::pair<std::string, double>> parameters;
  std::vector<ModelPoint> points, predictions;
};

struct Study {
  std::string folder;
  StudyKind kind = StudyKind::strong;
  std::string deck, invariant;
  double limit = 0.1; ///< of weak_model: the share that parameters per rank may be off one value
  std::vector<StudyPoint> points;
  std::optional<StudyModel> model;
};

/// model.json of a sweep is not read.
/// \throws InputError  naming the file and what is wrong: of study.json, of model.json, or of the result of a point,
/// which
///                     must have run on the ranks of its point
Study read_study(std::string const& folder);

} // namespace trainstone
