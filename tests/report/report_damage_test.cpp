// Damaged files: whatever is changed in a good one, a report is made of it or the file is refused by its name.

#include "report/report_page.hpp"

#include "core/error.hpp"
#include "model/parameter_table.hpp"
#include "report/commbench_section.hpp"
#include "support/result_fixture.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <filesystem>
#include <fstream>
#include <functional>

using namespace trainstone;
using namespace trainstone::test;
using Json = JsonFile::Json;
using Pointer = Json::json_pointer;

namespace {

/// Everything in it, the innermost values and what holds them.
std::vector<Pointer> places_in(Json const& json, Pointer const& here = Pointer()) {
  std::vector<Pointer> places;
  auto const add = [&](Json const& value, Pointer const& place) {
    places.push_back(place);
    for (Pointer const& inner : places_in(value, place)) places.push_back(inner);
  };
  if (json.is_object())
    for (auto const& entry : json.items()) add(entry.value(), here / entry.key());
  if (json.is_array())
    for (std::size_t i = 0; i < json.size(); ++i) add(json[i], here / i);
  return places;
}

void erase(Json& json, Pointer const& place) {
  Json& parent = json[place.parent_pointer()];
  if (parent.is_array())
    parent.erase(std::stoul(place.back()));
  else
    parent.erase(place.back());
}

std::vector<Json> const wrong_values{nullptr,
                                     true,
                                     -1,
                                     0,
                                     1,
                                     0.5,
                                     1e300,
                                     -1e300,
                                     1e-300,
                                     5e-324,
                                     std::numeric_limits<std::int64_t>::max(),
                                     std::numeric_limits<std::uint64_t>::max(),
                                     "",
                                     "~",
                                     "../<b>|`_[x](y)",
                                     std::string(300, 'x'),
                                     Json::array(),
                                     Json::object(),
                                     {{"~/", nullptr}},
                                     Json::array({nullptr, -1, "text", Json::array()})};

struct Tried {
  std::size_t refused = 0, shown = 0;
};

/// Every place of `good` with every wrong value and without any. \param[in] use  takes the damaged file
Tried damage(Json const& good, std::string const& name, std::function<void(Json const&)> const& use) {
  Tried tried;
  auto const try_with = [&](Json const& damaged, std::string const& what) {
    try {
      use(damaged);
      ++tried.shown;
    } catch (InputError const& refusal) {
      ++tried.refused;
      std::string const message = refusal.what();
      if (message.find(name + ": ") == std::string::npos || message.size() > 420) FAIL_CHECK(what << ": " << message);
    } catch (std::exception const& error) {
      FAIL_CHECK(what << " is an internal error: " << error.what());
    }
  };
  for (Pointer const& place : places_in(good)) {
    Json damaged = good;
    erase(damaged, place);
    try_with(damaged, place.to_string() + " missing");
    for (Json const& value : wrong_values) {
      damaged = good;
      damaged[place] = value;
      try_with(damaged, place.to_string() + " = " + value.dump());
    }
  }
  return tried;
}

void show(ReportInput input) {
  Page const page = report_page(input, "0.1.0");
  page_markdown(page);
  page_html(page);
}

void write(std::string const& path, Json const& json) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << json.dump();
}

/// Of runs on 1, 2, ... ranks, or of a sweep with a choice each.
Json study_of(std::vector<std::string> const& names, StudyKind kind) {
  Json study = {{"schema_version", 2},
                {"kind", to_string(kind)},
                {"deck", "no.toml"},
                {"invariant", "32 tokens per step"},
                {"limit", 0.1}};
  bool const sweeps = kind == StudyKind::sweep;
  std::int64_t ranks = 0;
  for (std::string const& name : names) {
    study["points"].push_back({{"name", name},
                               {"cell", "cell of " + name},
                               {"ranks", sweeps ? 1 : ++ranks},
                               {"nodes", 1},
                               {"repeat", 1},
                               {"overrides", {"batch.micro=1"}},
                               {"predicted", {{"step_seconds", 0.5}, {"memory_bytes", 1024}}}});
    if (sweeps) study["points"].back()["choice"] = "a.b=" + name;
  }
  return study;
}

Json const model{
    {"form", "a + b / ranks"},
    {"parameters", {{"a", 0.001}, {"b", 0.002}}},
    {"points",
     {{{"ranks", 2}, {"measured_seconds", 0.004}, {"fitted_seconds", 0.003}, {"residual", 0.25}, {"flagged", true}}}},
    {"predictions", {{{"ranks", 16}, {"seconds", 0.0125}}}}};

Json commbench_row(std::string const& algorithm, std::uint64_t bytes, double seconds) {
  return {{"collective", "all_reduce"},
          {"type", "float32"},
          {"algorithm", algorithm},
          {"picked", algorithm == "auto" ? Json("ring") : Json(nullptr)},
          {"bytes", bytes},
          {"seconds", {{"p50", seconds}, {"p05", seconds}, {"p95", seconds}}},
          {"bus_bytes_per_second", static_cast<double>(bytes) / seconds},
          {"predicted_seconds", seconds},
          {"wrong", 0}};
}

Json const commbench{{"schema_version", 1},
                     {"kind", "commbench"},
                     {"status", "RIGHT"},
                     {"header",
                      {{"version", "0.1.0"},
                       {"mpi", "MPICH"},
                       {"cpu", "a processor"},
                       {"kokkos", "4.5.1 Serial"},
                       {"buffers", "host"},
                       {"predictions", "peaks.json"},
                       {"timing", "median"},
                       {"ranks", 2},
                       {"nodes", 1},
                       {"emulated_nodes", false}}},
                     {"rows",
                      {commbench_row("ring", 8, 1e-6), commbench_row("ring", 1024, 2e-6),
                       commbench_row("auto", 1024, 2e-6), commbench_row("mpi", 1024, 3e-6)}}};

} // namespace

TEST_CASE("no damage of a result is an internal error", "[report][damage]") {
  NamedResult const other = named("other", run_of(Outcome::valid, 2, 1000));
  Outcome const outcome = GENERATE(Outcome::valid, Outcome::stopped);
  Tried const tried = damage(json_of(run_of(outcome, 1, 1000)), "a.json", [&](Json const& damaged) {
    show({{"a.json"}, {{"damaged", read_back(damaged), {}}, other}, {}, {}});
  });
  CHECK(tried.refused > 1000);
  CHECK(tried.shown > 100);
}

TEST_CASE("no damage of a study, its model or its results is an internal error", "[report][damage]") {
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/study";
  StudyKind const kind = GENERATE(StudyKind::strong, StudyKind::sweep);
  Json const study = study_of({"n1", "n2", "n3"}, kind), result = json_of(run_of(Outcome::valid, 1, 1000));
  write(path + "/study.json", study);
  write(path + "/model.json", model);
  write(path + "/runs/n1/result.json", result);
  write(path + "/runs/n2/result.json", json_of(run_of(Outcome::valid, kind == StudyKind::sweep ? 1 : 2, 1900)));
  auto const damage_file = [&](std::string const& name, Json const& good, std::string const& named) {
    Tried const tried = damage(good, named, [&](Json const& damaged) {
      write(path + name, damaged);
      show(read_report_input({path}, ""));
    });
    write(path + name, good);
    return tried;
  };
  CHECK(damage_file("/study.json", study, "").refused > 100);
  Tried const of_model = damage_file("/model.json", model, "model.json");
  CHECK((kind == StudyKind::sweep ? of_model.refused == 0 : of_model.refused > 50)); // a sweep has none to read
  CHECK(damage_file("/runs/n1/result.json", {{"kind", "run"}, {"schema_version", 1}}, "n1/result.json").shown == 0);
}

TEST_CASE("no damage of a file of collectives is an internal error", "[report][damage]") {
  Tried const tried = damage(commbench, "a.json", [](Json const& damaged) {
    show({{"a.json"}, {}, {{"bench", read_commbench(JsonFile("a.json", "", damaged))}}, {}});
  });
  CHECK(tried.refused > 500);
  CHECK(tried.shown > 100);
}

TEST_CASE("no damage of golden curves is an internal error", "[report][damage]") {
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/golden.json";
  Json kinds = Json::object();
  for (int kind = 0; kind < tensor_kinds; ++kind) kinds[std::string(to_string(static_cast<Tensor>(kind)))] = 0.25;
  Json const update{{"norm", 2.5}, {"loss_after", 5.0}, {"gradients", kinds}, {"changes", kinds}};
  Json const golden{
      {"schema_version", 1},
      {"curves", {{"a", {{"recorded_with", "0.1.0"}, {"losses", {5.5, 5.25}}}}}},
      {"first_steps", {{"a", {{"loss", 5.5}, {"positions", 8}, {"recorded_with", "0.1.0"}, {"update", update}}}}}};
  Tried const tried = damage(golden, "golden.json", [&](Json const& damaged) {
    write(path, damaged);
    std::optional<GoldenFirstStep> const first = find_golden_first_step(path, "a");
    if (first && first->positions < 1) throw Error("no positions");
    NamedResult result = named("a", run_of(Outcome::valid, 1, 1000));
    result.golden = find_golden_curve(path, "a");
    show({{"a.json"}, {result}, {}, {}});
  });
  CHECK(tried.refused > 50);
}

TEST_CASE("values that a report cannot show are refused with their place", "[report][damage]") {
  auto const error_of = [](Json const& damaged) -> std::string {
    try {
      read_commbench(JsonFile("a.json", "", damaged));
    } catch (InputError const& error) {
      return error.what();
    }
    return {};
  };
  Json damaged = commbench;
  damaged["rows"][0]["type"] = "../../float32";
  CHECK(error_of(damaged) == "a.json: /rows/0/type must be a word of lower-case letters, digits and _");
  damaged = commbench;
  damaged["rows"][0]["bus_bytes_per_second"] = 5e-324;
  CHECK(error_of(damaged).starts_with("a.json: /rows/0/bus_bytes_per_second is 5e-324, must not be that small"));
}
