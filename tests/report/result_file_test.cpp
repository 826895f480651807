// Result files read back, and what they must prove.

#include "report/result_file.hpp"

#include "core/error.hpp"
#include "report/result_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Json = JsonFile::Json;

namespace {

std::string error_of(Json const& json) {
  try {
    read_back(json);
  } catch (InputError const& error) {
    return error.what();
  }
  return {};
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
           {"/metrics/floor_seconds", 0, "/metrics/floor_seconds is 0, must be above 0"},
           {"/samples/step/2", 9, "/samples/step/2 is 9, must be one more than 3"},
           {"/samples/step/0", 0, "/samples/step/0 is 0, must be an integer above 0"},
           {"/samples/tokens", {1}, "/samples/tokens has 1 elements, /samples/step 4"},
           {"/samples/tokens/3", 1e300, "/samples/tokens/3 is 1e+300, must be an integer above 0"},
           {"/samples/phases/comm/1", -0.5, "/samples/phases/comm/1 is -0.5, must not be negative"},
           {"/samples/seconds/1", 1e300, "/samples/seconds/1 is 1e+300, must not exceed 1e100"},
           {"/samples/seconds/1", 1e-300, "/samples/seconds/1 is 1e-300, must not be that small"},
           {"/samples/loss/1", -1e300, "/samples/loss/1 is -1e+300, must not exceed 1e100"},
           {"/fom/ci95", {2000, 1}, "/fom/ci95 is from 2000 to 1"},
           {"/ranks/1", nullptr, "/ranks/1/rank is missing"},
           {"/topology/ranks", 3, "/ranks has 2 elements, /topology/ranks is 3"},
           {"/window/last_step", 6, "/window is from step 3 to 6, must lie in /samples/step"},
           {"/params/batch.global/value", nullptr, "/params/batch.global/value must be a number, a text"},
       }) {
    CAPTURE(place);
    Json json = good;
    json[Json::json_pointer(place)] = value;
    CHECK_THAT(error_of(json), ContainsSubstring(message));
  }
}

TEST_CASE("keys of any letters are read", "[report][result_file]") {
  Json json = json_of(run_of(Outcome::valid, 2, 1000));
  for (char const* key : {"~", "~1", "a/b", "", "/"}) {
    json["params"][key] = {{"value", key}, {"origin", "default"}};
    json["metrics"][key] = 5;
    json["counted"]["memory_bytes"][key] = 0;
  }
  ResultFile const file = read_back(json);
  CHECK(file.deck_values.at("~") == "\"~\"");
  CHECK(file.deck_values.at("a/b") == "\"a/b\"");
  CHECK(file.result.metrics.at("/") == 5);
  json["metrics"]["~"] = "text";
  CHECK(error_of(json) == "a.json: /metrics/~0 is \"text\", must be a number");
}

TEST_CASE("a message shows no more of a value than a line has room for", "[report][result_file]") {
  Json json = json_of(run_of(Outcome::valid, 2, 1000));
  json["wall_seconds"] = std::string(1000, 'x');
  CHECK(error_of(json).size() < 120);
  Json deep = 1;
  for (int depth = 0; depth < 100; ++depth) deep = Json::array({deep});
  json["wall_seconds"] = deep;
  CHECK(error_of(json) == "a.json: /wall_seconds is an array, must be a number");
}
