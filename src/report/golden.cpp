#include "report/golden.hpp"

#include "core/atomic_file.hpp"
#include "core/error.hpp"
#include "core/json_text.hpp"
#include "report/json_file.hpp"
#include "report/statistics.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace trainstone {

namespace {

using Json = nlohmann::ordered_json;

constexpr int schema_version = 1;
constexpr char const* curves_section = "curves";
constexpr char const* first_steps_section = "first_steps";

/// The file's content; an empty one if there is no file.
Json read_curves(std::string const& path) {
  std::ifstream file(path);
  if (!file.good()) return {{"schema_version", schema_version}, {"curves", Json::object()}};
  try {
    Json json = Json::parse(file);
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

/// The entry of a key in a section of the file, read by `read`; nothing if it is not there.
template <class Entry, class Read>
std::optional<Entry> find_entry(std::string const& path, char const* section, std::string const& key,
                                Read const& read) {
  Json const json = read_curves(path);
  if (!json.contains(section) || !json[section].contains(key)) return std::nullopt;
  return read(JsonFile(path, fmt::format("; damaged entry {} of \"{}\"", key, section), json[section][key]));
}

void write_entry(std::string const& path, char const* section, std::string const& key, Json const& entry) {
  Json json = read_curves(path);
  json[section][key] = entry;
  make_folder_of(path);
  write_file_atomically(path, json_text(json));
}

double relative_error(double value, double expected) { return std::abs(value - expected) / std::abs(expected); }

/// The larger one; not a number if either is none, so that it fails every bound.
double larger(double a, double b) { return std::isnan(a) || b < a ? a : b; }

} // namespace

std::string golden_path(std::string const& deck_path) {
  std::filesystem::path const deck(deck_path);
  return (deck.parent_path() / "golden" / deck.stem()).string() + ".json";
}

std::optional<GoldenCurve> find_golden_curve(std::string const& path, std::string const& key) {
  return find_entry<GoldenCurve>(path, curves_section, key, [](JsonFile const& curve) {
    curve.require(curve.length("/losses") > 0, "/losses must be an array of at least one number");
    return GoldenCurve{curve.numbers("/losses", false), curve.text("/recorded_with")};
  });
}

std::optional<GoldenFirstStep> find_golden_first_step(std::string const& path, std::string const& key) {
  return find_entry<GoldenFirstStep>(path, first_steps_section, key, [](JsonFile const& first) {
    return GoldenFirstStep{first.number("/loss"), first.count("/positions"), first.text("/recorded_with")};
  });
}

void record_golden_curve(std::string const& path, std::string const& key, GoldenCurve const& curve) {
  bool const finite =
      std::all_of(curve.losses.begin(), curve.losses.end(), [](double loss) { return std::isfinite(loss); });
  TRAINSTONE_REQUIRE(finite && !curve.losses.empty(), "a golden curve of {} losses, all finite: {}",
                     curve.losses.size(), finite);
  write_entry(path, curves_section, key, {{"recorded_with", curve.recorded_with}, {"losses", curve.losses}});
}

void record_golden_first_step(std::string const& path, std::string const& key, GoldenFirstStep const& first) {
  TRAINSTONE_REQUIRE(std::isfinite(first.loss) && first.positions > 0, "a golden loss of {} over {} positions",
                     first.loss, first.positions);
  write_entry(path, first_steps_section, key,
              {{"recorded_with", first.recorded_with}, {"positions", first.positions}, {"loss", first.loss}});
}

Check compare_with_golden(GoldenCurve const& golden, std::span<double const> losses, bool may_stop_early) {
  Check check;
  check.name = "loss-curve";
  check.limit = golden_first_bound;
  std::size_t const count = std::min(golden.losses.size(), losses.size());
  bool const comparable = count > 0 && (golden.losses.size() == losses.size() || may_stop_early);
  if (!comparable) {
    check.value = static_cast<double>(losses.size());
    check.limit = static_cast<double>(golden.losses.size());
    check.detail = fmt::format("the run has {} steps, the golden curve {}", losses.size(), golden.losses.size());
    return check;
  }

  std::size_t const first = std::min<std::size_t>(count, golden_first_steps);
  for (std::size_t i = 0; i < first; ++i) {
    check.value = larger(check.value, relative_error(losses[i], golden.losses[i]));
  }
  check.passed = check.value <= golden_first_bound;
  check.detail = fmt::format("first {} steps within {:.2e} of the golden curve", first, check.value);

  std::size_t const last = std::min<std::size_t>(count - first, golden_last_steps);
  if (last > 0) {
    std::span<double const> const expected(golden.losses);
    double const error =
        relative_error(mean(losses.subspan(count - last, last)), mean(expected.subspan(count - last, last)));
    check.detail += fmt::format(", mean of the last {} within {:.2e}", last, error);
    bool const last_passed = error <= golden_last_bound;
    // The check shows the bound that fails, or else the first one.
    if (check.passed && !last_passed) {
      check.value = error;
      check.limit = golden_last_bound;
      check.passed = false;
    }
  }
  return check;
}

} // namespace trainstone
