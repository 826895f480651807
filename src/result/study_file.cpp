#include "result/study_file.hpp"

#include "core/error.hpp"
#include "result/json_file.hpp"

#include <algorithm>
#include <filesystem>

namespace trainstone {

namespace {

constexpr int schema_version = 1;

StudyKind read_kind(JsonFile const& file) {
  std::string const name = file.text("/kind");
  for (StudyKind const kind : {StudyKind::strong, StudyKind::weak_batch, StudyKind::weak_model})
    if (name == to_string(kind)) return kind;
  file.fail(fmt::format("/kind is \"{}\", must be strong, weak-batch or weak-model", name));
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

std::vector<StudyPoint> read_points(JsonFile const& file, std::string const& folder) {
  std::vector<StudyPoint> points;
  for (std::size_t i = 0; i < file.length("/points"); ++i) {
    std::string const place = fmt::format("/points/{}/", i);
    StudyPoint point{.name = file.text(place + "name"),
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
  }
  return {};
}

Study read_study(std::string const& folder) {
  std::filesystem::path const path(folder);
  JsonFile const file = JsonFile::read(path / "study.json", "");
  file.require_version(schema_version);
  Study study{.folder = folder,
              .kind = read_kind(file),
              .deck = file.text("/deck"),
              .invariant = file.text("/invariant"),
              .limit = read_limit(file),
              .points = read_points(file, folder),
              .model = {}};
  std::error_code ignored;
  if (std::filesystem::exists(path / "model.json", ignored))
    study.model = read_model(JsonFile::read(path / "model.json", ""));
  return study;
}

} // namespace trainstone
