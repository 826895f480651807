#include "result/study_file.hpp"

#include "core/error.hpp"
#include "result/json_file.hpp"

#include <algorithm>
#include <filesystem>

namespace trainstone {

namespace {

constexpr int schema_version = 2;

StudyKind read_kind(JsonFile const& file) {
  std::string const name = file.text("/kind");
  for (StudyKind const kind :
       {StudyKind::strong, StudyKind::weak_batch, StudyKind::weak_model, StudyKind::sweep, StudyKind::to_loss})
    if (name == to_string(kind)) return kind;
  file.fail(fmt::format("/kind is \"{}\", must be strong, weak-batch, weak-model, sweep or to-loss", name));
}

/// As planned; studies that do not say it were planned with the usual one.
double read_limit(JsonFile const& file) {
  double const limit = file.optional_non_negative("/limit").value_or(Study().limit);
  file.require(limit < 1, fmt::format("/limit is {:g}, must be below 1", limit));
  return limit;
}

/// A name is a folder of its own below runs/.
void require_name(JsonFile const& file, std::string const& name, std::vector<StudyPoint> const& earlier) {
  bool const plain = !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
  file.require(plain, fmt::format("a point is called \"{}\", must be the name of a folder", name));
  file.require(std::ranges::none_of(earlier, [&](StudyPoint const& point) { return point.name == name; }),
               fmt::format("two points are called \"{}\"", name));
}

/// Points of a cell are repeats of one run. A sweep's cells have one number of ranks, and a choice each.
void require_cell(JsonFile const& file, StudyPoint const& point, std::vector<StudyPoint> const& earlier) {
  for (StudyPoint const& other : earlier) {
    bool const sweeps = !point.choice.empty();
    bool const repeats = other.ranks == point.ranks && other.nodes == point.nodes && other.choice == point.choice &&
                         other.overrides == point.overrides;
    file.require(other.cell != point.cell || repeats,
                 fmt::format("points {} and {} of cell \"{}\" are no repeats: ranks, nodes, choice or overrides differ",
                             other.name, point.name, point.cell));
    file.require(!sweeps || other.ranks == point.ranks, fmt::format("points {} and {} of a sweep have {} and {} ranks",
                                                                    other.name, point.name, other.ranks, point.ranks));
    file.require(!sweeps || other.cell == point.cell || other.choice != point.choice,
                 fmt::format("cells \"{}\" and \"{}\" have the same choice", other.cell, point.cell));
  }
}

std::optional<ResultFile> read_result_of(std::string const& folder, StudyPoint const& point) {
  std::filesystem::path const path = std::filesystem::path(folder) / "runs" / point.name / "result.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  JsonFile const file = JsonFile::read(path, "");
  file.require(file.has("/kind") && file.at("/kind") == "run", "no result of a run: /kind must be \"run\"");
  ResultFile read = read_result(file);
  file.require(read.result.topology.ranks == point.ranks,
               fmt::format("ran on {} ranks, study.json says {}", read.result.topology.ranks, point.ranks));
  return read;
}

/// Sweeps and studies to a loss have a choice for each point, other studies have none.
std::string read_choice(JsonFile const& file, StudyKind kind, std::string const& place) {
  std::string const pointer = place + "choice";
  file.require(has_choices(kind) || !file.has(pointer),
               fmt::format("{} belongs to sweep and to-loss, and /kind is \"{}\"", pointer, to_string(kind)));
  if (!has_choices(kind)) return {};
  std::string choice = file.text(pointer);
  file.require(!choice.empty(), pointer + " is empty, must be KEY=VALUE");
  return choice;
}

std::vector<StudyPoint> read_points(JsonFile const& file, std::string const& folder, StudyKind kind) {
  std::vector<StudyPoint> points;
  for (std::size_t i = 0; i < file.length("/points"); ++i) {
    std::string const place = fmt::format("/points/{}/", i);
    StudyPoint point{.name = file.text(place + "name"),
                     .cell = file.text(place + "cell"),
                     .choice = read_choice(file, kind, place),
                     .ranks = file.count(place + "ranks"),
                     .nodes = file.count(place + "nodes"),
                     .repeat = file.count(place + "repeat"),
                     .overrides = {},
                     .predicted_seconds = file.optional_non_negative(place + "predicted/step_seconds"),
                     .predicted_bytes = {},
                     .result = {}};
    if (file.has(place + "predicted/memory_bytes"))
      point.predicted_bytes = file.amount(place + "predicted/memory_bytes");
    require_name(file, point.name, points);
    for (std::size_t j = 0; j < file.length(place + "overrides"); ++j)
      point.overrides.push_back(file.text(fmt::format("{}overrides/{}", place, j)));
    require_cell(file, point, points);
    point.result = read_result_of(folder, point);
    points.push_back(std::move(point));
  }
  file.require(!points.empty(), "/points must be an array of at least one point");
  return points;
}

StudyModel read_model(JsonFile const& file) {
  StudyModel model{file.text("/form"), {}, {}, {}};
  for (auto const& [key, pointer] : file.members("/parameters"))
    model.parameters.emplace_back(key, file.number(pointer));
  for (std::size_t i = 0; i < file.length("/points"); ++i) {
    std::string const place = fmt::format("/points/{}/", i);
    model.points.push_back({file.count(place + "ranks"), file.positive(place + "measured_seconds"),
                            file.number(place + "residual"), file.number(place + "fitted_seconds"),
                            file.boolean(place + "flagged")});
  }
  for (std::size_t i = 0; i < file.length("/predictions"); ++i) {
    std::string const place = fmt::format("/predictions/{}/", i);
    model.predictions.push_back({file.count(place + "ranks"), {}, {}, file.number(place + "seconds"), false});
  }
  return model;
}

} // namespace

std::string to_string(StudyKind kind) {
  switch (kind) {
  case StudyKind::strong: return "strong";
  case StudyKind::weak_batch: return "weak-batch";
  case StudyKind::weak_model: return "weak-model";
  case StudyKind::sweep: return "sweep";
  case StudyKind::to_loss: return "to-loss";
  }
  return {};
}

Study read_study(std::string const& folder) {
  std::filesystem::path const path(folder);
  JsonFile const file = JsonFile::read(path / "study.json", "");
  file.require_version(schema_version);
  StudyKind const kind = read_kind(file);
  Study study{.folder = folder,
              .kind = kind,
              .deck = file.text("/deck"),
              .invariant = file.text("/invariant"),
              .limit = read_limit(file),
              .points = read_points(file, folder, kind),
              .model = {}};
  std::error_code ignored;
  if (kind != StudyKind::sweep && std::filesystem::exists(path / "model.json", ignored))
    study.model = read_model(JsonFile::read(path / "model.json", ""));
  return study;
}

} // namespace trainstone
