// Result files read back, and what several of them have in common.

#include "report/result_file.hpp"

#include "core/error.hpp"
#include "report/json_file.hpp"
#include "report/scaling.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <limits>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using Json = JsonFile::Json;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Four steps, of which the last three are measured, of 32 tokens each.
Result run_of(Outcome outcome, std::int64_t ranks, double tokens_per_second) {
  Result run;
  run.outcome = outcome;
  run.parameters = {{"parallel.zero_stage", "", std::int64_t{1}, "default"}, {"batch.global", "", ranks, "deck:3"}};
  run.deck = "small.toml#9f3e +1 override";
  run.deck_hash = "0123456789abcdef";
  run.golden_key = "fedcba9876543210";
  run.code = {"0.1.0", "1a2b3c4d", true, "GCC 16", "4.5.1 Serial"};
  run.machine = {"a processor", 2, 1 << 30, "MPICH", {}};
  run.topology.ranks = ranks;
  run.predicted = {{{"parameters", 100}, {"data", 11}}, 64, 3, 1000, 7};
  run.counted = run.predicted;
  run.resident_bytes = 12345;
  run.wall_seconds = 1.5;
  run.losses_before = {6.5};
  run.checkpoints.resumed_from = "kept/step-1";
  for (std::int64_t step = 2; step <= 5; ++step) {
    StepReport report;
    report.step = step;
    report.loss = 6.5 - static_cast<double>(step);
    report.norm = step == 3 ? not_a_number : 0.25;
    report.skipped = step == 3;
    report.learning_rate = 1e-3;
    report.seconds = 32 / tokens_per_second;
    report.tokens = 32;
    for (Phase const phase : phases) report.phase_seconds[phase] = 0.01 * static_cast<double>(step);
    run.samples.push_back(report);
  }
  run.samples.back().validation_loss = 2.25;
  for (std::int64_t rank = 0; rank < ranks; ++rank) run.ranks.push_back({rank, "node", 0.5, 0.25, 0.125});
  run.window = {3, 5};
  if (outcome != Outcome::stopped)
    run.tokens_per_second = {tokens_per_second, 0.9 * tokens_per_second, 1.1 * tokens_per_second};
  run.metrics = {{"skipped_steps", 1}, {"executed_flops_per_second", 10 * tokens_per_second}};
  if (outcome != Outcome::stopped) run.checks = {{"finite", outcome != Outcome::invalid, 0.5, 1, "losses"}};
  return run;
}

Json json_of(Result const& run) { return Json::parse(result_json(run)); }

ResultFile read_back(Json const& json) { return read_result(JsonFile("a.json", "", json)); }

std::string error_of(Json const& json) {
  try {
    read_back(json);
  } catch (InputError const& error) {
    return error.what();
  }
  return {};
}

NamedResult named(std::string const& name, Result const& run) { return {name, read_back(json_of(run)), {}}; }

std::vector<NamedResult const*> all_of(std::vector<NamedResult> const& results) {
  std::vector<NamedResult const*> pointers;
  for (NamedResult const& result : results) pointers.push_back(&result);
  return pointers;
}

} // namespace

TEST_CASE("a result that is read back writes the same file", "[report][result_file]") {
  for (Outcome const outcome :
       {Outcome::valid, Outcome::unreferenced, Outcome::emulated, Outcome::invalid, Outcome::stopped}) {
    Json written = json_of(run_of(outcome, 3, 1000));
    ResultFile const file = read_back(written);
    CHECK(file.path == "a.json");
    CHECK(file.time == written["time"].get<std::string>());
    CHECK(file.deck_values.at("parallel.zero_stage") == "1");
    Json again = json_of(file.result);
    for (char const* left_out : {"time", "params", "checkpoints", "restart_count"}) {
      written.erase(left_out);
      again.erase(left_out);
    }
    CHECK(again.dump(1) == written.dump(1));
  }
}

TEST_CASE("phases that were not timed stay so", "[report][result_file]") {
  Result run = run_of(Outcome::valid, 1, 1000);
  for (StepReport& step : run.samples) step.phases_are_timed = false;
  for (StepReport const& step : read_back(json_of(run)).result.samples) CHECK(!step.phases_are_timed);
}

TEST_CASE("a result file that contradicts itself is refused with the place", "[report][result_file]") {
  Json const good = json_of(run_of(Outcome::valid, 2, 1000));
  struct Case {
    char const* place;
    Json value;
    char const* message;
  };
  for (auto const& [place, value, message] : std::vector<Case>{
           {"/schema_version", 2, "a.json: schema_version 2, must be 1"},
           {"/status", "FINE", "/status is \"FINE\""},
           {"/status", "INVALID", "/fom must be null in a run that is INVALID"},
           {"/fom/ci95", {1}, "/fom/ci95 must be two numbers"},
           {"/fom/value", nullptr, "/fom/value is null, must be a number"},
           {"/fom/value", 0, "/fom/value is 0, must be above 0"},
           {"/samples/loss/1", nullptr, "/samples/loss/1 is null, must be a number"},
           {"/samples/loss", {1}, "/samples/loss has 1 elements, /samples/step 4"},
           {"/samples/seconds/0", 0, "/samples/seconds/0 is 0, must be above 0"},
           {"/samples/phases/gemm", 3, "/samples/phases/gemm must be an array"},
           {"/samples/skipped/2", 1, "/samples/skipped/2 is 1, must be true or false"},
           {"/counted/memory_bytes/total", 5, "/counted/memory_bytes/total is 5, the others add up to 111"},
           {"/counted/messages", -1, "/counted/messages is -1, must be an integer, 0 or more"},
           {"/code/git", 5, "/code/git is 5, must be a string"},
           {"/topology/ranks", 0, "/topology/ranks is 0, must be an integer above 0"},
           {"/verification/0/passed", false, "/status is VALID, and a check failed"},
           {"/metrics", {1}, "/metrics must be an object"},
       }) {
    CAPTURE(place);
    Json json = good;
    json[Json::json_pointer(place)] = value;
    CHECK_THAT(error_of(json), ContainsSubstring(message));
  }
}

TEST_CASE("rates at a number of ranks are medians of repeats, or a single run's with its interval",
          "[report][scaling]") {
  std::vector<NamedResult> const results{
      named("a", run_of(Outcome::valid, 1, 1000)), named("b", run_of(Outcome::valid, 2, 1500)),
      named("c", run_of(Outcome::unreferenced, 2, 1700)), named("d", run_of(Outcome::valid, 2, 1600))};
  auto const lines = scaling_lines(all_of(results), Told::by_values, false);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].name == "small.toml");
  CHECK(lines[0].rate_name == "FOM and FOM_UNREFERENCED");
  REQUIRE(lines[0].rates.size() == 2);
  CHECK(lines[0].rates[0].low == 900);
  CHECK(lines[0].rates[1].value == 1600);
  CHECK(lines[0].rates[1].low == 1500);
  CHECK(lines[0].rates[1].high == 1700);
  CHECK(lines[0].rates[1].repeats == 3);
  CHECK_THAT(efficiencies(lines[0].rates)[1].value, WithinRel(0.8, 1e-12));
  CHECK(efficiencies(lines[0].rates)[0].value == 1);
  CHECK(invariant_of(lines[0]) == "strong scaling: 32 tokens per step on any number of ranks");
  CHECK_THAT(scaling_lines(all_of(results), Told::by_study, true)[0].rates[0].value, WithinRel(1e4, 1e-12));
}

TEST_CASE("rates of invalid and stopped runs are in no comparison, those of emulated ones apart", "[report][scaling]") {
  std::vector<NamedResult> results{
      named("a", run_of(Outcome::valid, 1, 1000)), named("b", run_of(Outcome::invalid, 2, 9999)),
      named("c", run_of(Outcome::stopped, 4, 9999)), named("d", run_of(Outcome::emulated, 2, 500))};
  auto const lines = scaling_lines(all_of(results), Told::by_study, false);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].rate_name == "FOM");
  CHECK(lines[0].rates.size() == 1);
  CHECK(lines[1].rate_name == "FOM_EMULATED");
  CHECK(lines[1].rates.size() == 1);
}

TEST_CASE("results with other values of the deck, or other nodes for the same ranks, lie on other lines",
          "[report][scaling]") {
  Result sharded = run_of(Outcome::valid, 2, 1200);
  sharded.parameters[0].value = std::int64_t{3};
  std::vector<NamedResult> results{named("a", run_of(Outcome::valid, 2, 1000)), named("b", sharded),
                                   named("c", run_of(Outcome::valid, 4, 1900))};
  auto lines = scaling_lines(all_of(results), Told::by_values, false);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].name == "small.toml, parallel.zero_stage=1");
  CHECK(lines[0].rates.size() == 2);
  CHECK(lines[1].name == "small.toml, parallel.zero_stage=3");
  CHECK(scaling_lines(all_of(results), Told::by_study, false).size() == 1);
  Result apart = run_of(Outcome::valid, 2, 1000);
  apart.topology.nodes = 2;
  results = {named("a", run_of(Outcome::valid, 2, 1000)), named("b", apart)};
  lines = scaling_lines(all_of(results), Told::by_values, false);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].name == "small.toml, 1 node");
}
