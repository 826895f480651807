#include "result/golden.hpp"

#include "core/atomic_file.hpp"
#include "core/error.hpp"
#include "core/json_text.hpp"
#include "model/parameter_table.hpp"
#include "result/json_file.hpp"

#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace trainstone {

namespace {

using Json = nlohmann::ordered_json;

constexpr int schema_version = 1;
constexpr char const* curves_section = "curves";
constexpr char const* first_steps_section = "first_steps";

/// The file's bytes; nothing if there is no file.
std::optional<std::string> read_bytes(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.good()) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// What the bytes hold; an empty file's if there are none.
Json read_curves(std::string const& path, std::optional<std::string> const& bytes) {
  if (!bytes) return {{"schema_version", schema_version}, {"curves", Json::object()}};
  try {
    Json json = Json::parse(*bytes);
    Json const& version = json.at("schema_version");
    TRAINSTONE_REQUIRE_INPUT(version == schema_version, "{}: golden curves of schema_version {}, must be {}", path,
                             json_line(version), schema_version);
    for (char const* section : {curves_section, first_steps_section})
      TRAINSTONE_REQUIRE_INPUT(json.value(section, Json::object()).is_object(), "{}: \"{}\" must be an object", path,
                               section);
    TRAINSTONE_REQUIRE_INPUT(json.contains(curves_section), "{}: no golden curves: \"{}\" is missing", path,
                             curves_section);
    return json;
  } catch (Json::exception const& error) {
    throw InputError(fmt::format("{}: no golden curves: {}", path, error.what()));
  }
}

/// The entry of a key in a section of the file; nothing if it is not there.
std::optional<JsonFile> find_entry(std::string const& path, Json const& json, char const* section,
                                   std::string const& key) {
  if (!json.contains(section) || !json[section].contains(key)) return std::nullopt;
  return JsonFile(path, fmt::format("; damaged entry {} of \"{}\"", key, section), json[section][key]);
}

/// A number for every kind of tensor, in the order of Tensor.
std::vector<double> read_kinds(JsonFile const& entry, std::string_view place) {
  std::vector<double> values;
  for (int kind = 0; kind < tensor_kinds; ++kind)
    values.push_back(entry.non_negative(fmt::format("{}/{}", place, to_string(static_cast<Tensor>(kind)))));
  return values;
}

EarlySteps read_early(JsonFile const& entry) {
  EarlySteps early;
  if (entry.has("/norms")) early.norms = entry.numbers("/norms", false, JsonFile::Least::zero);
  if (!entry.has("/changes")) return early;
  early.changed_after = entry.count("/changes/after_step");
  early.changes = read_kinds(entry, "/changes/mean");
  return early;
}

std::optional<GoldenBounds> read_bounds(JsonFile const& entry, std::string const& place) {
  if (!entry.has(place)) return std::nullopt;
  return GoldenBounds{entry.positive(place + "/losses"), entry.positive(place + "/norms"),
                      entry.positive(place + "/changes"), entry.text(place + "/derived_from")};
}

GoldenCurve read_curve(JsonFile const& entry) {
  entry.require(entry.length("/losses") > 0, "/losses must be an array of at least one number");
  GoldenCurve curve{entry.numbers("/losses", false), entry.text("/recorded_with"), read_early(entry)};
  curve.bounds = read_bounds(entry, "/bounds");
  curve.bounds_of_bf16 = read_bounds(entry, "/bounds_of_bf16");
  return curve;
}

GoldenFirstStep read_first_step(JsonFile const& entry) {
  GoldenFirstStep first{entry.number("/loss"), entry.count("/positions"), entry.text("/recorded_with")};
  if (entry.has("/update"))
    first.update = FirstUpdate{entry.positive("/update/norm"), read_kinds(entry, "/update/gradients"),
                               read_kinds(entry, "/update/changes"), entry.number("/update/loss_after")};
  return first;
}

void write_entry(std::string const& path, char const* section, std::string const& key, Json const& entry) {
  Json json = read_curves(path, read_bytes(path));
  json[section][key] = entry;
  write_file_in_folder(path, json_text(json));
}

Json bounds_json(GoldenBounds const& bounds) {
  return {{"losses", bounds.losses},
          {"norms", bounds.norms},
          {"changes", bounds.changes},
          {"derived_from", bounds.derived_from}};
}

bool all_finite(std::vector<double> const& values) {
  return std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
}

} // namespace

std::string golden_path(std::string const& deck_path) {
  std::filesystem::path const deck(deck_path);
  return (deck.parent_path() / "golden" / deck.stem()).string() + ".json";
}

GoldenEntry find_golden(std::string const& path, std::string const& key) {
  std::optional<std::string> const bytes = read_bytes(path);
  Json const json = read_curves(path, bytes);
  GoldenEntry golden;
  if (bytes) golden.digest = fmt::format("{:016x}", XXH3_64bits(bytes->data(), bytes->size()));
  if (auto const entry = find_entry(path, json, curves_section, key)) golden.curve = read_curve(*entry);
  if (auto const entry = find_entry(path, json, first_steps_section, key)) golden.first_step = read_first_step(*entry);
  return golden;
}

std::optional<GoldenCurve> find_golden_curve(std::string const& path, std::string const& key) {
  return find_golden(path, key).curve;
}

std::optional<GoldenFirstStep> find_golden_first_step(std::string const& path, std::string const& key) {
  return find_golden(path, key).first_step;
}

void record_golden_curve(std::string const& path, std::string const& key, GoldenCurve const& curve) {
  bool const finite = all_finite(curve.losses);
  TRAINSTONE_REQUIRE(finite && !curve.losses.empty(), "a golden curve of {} losses, all finite: {}",
                     curve.losses.size(), finite);
  Json entry{{"recorded_with", curve.recorded_with}};
  if (!curve.early.norms.empty() && all_finite(curve.early.norms)) entry["norms"] = curve.early.norms;
  if (!curve.early.changes.empty() && all_finite(curve.early.changes)) entry["changes"] = changes_json(curve.early);
  if (curve.bounds) entry["bounds"] = bounds_json(*curve.bounds);
  if (curve.bounds_of_bf16) entry["bounds_of_bf16"] = bounds_json(*curve.bounds_of_bf16);
  entry["losses"] = curve.losses;
  write_entry(path, curves_section, key, entry);
}

void record_golden_first_step(std::string const& path, std::string const& key, GoldenFirstStep const& first) {
  TRAINSTONE_REQUIRE(std::isfinite(first.loss) && first.positions > 0, "a golden loss of {} over {} positions",
                     first.loss, first.positions);
  write_entry(path, first_steps_section, key,
              {{"recorded_with", first.recorded_with}, {"positions", first.positions}, {"loss", first.loss}});
}

nlohmann::ordered_json changes_json(EarlySteps const& early) {
  if (early.changes.empty()) return nullptr;
  Json mean = Json::object();
  for (std::size_t kind = 0; kind < early.changes.size(); ++kind)
    mean[std::string(to_string(static_cast<Tensor>(kind)))] = early.changes[kind];
  return {{"after_step", early.changed_after}, {"mean", mean}};
}

} // namespace trainstone
