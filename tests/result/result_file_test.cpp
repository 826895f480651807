// Result files read back, and what they must prove.

#include "result/result_file.hpp"

#include "core/error.hpp"
#include "support/result_fixture.hpp"

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
    Json written =
        json_of(outcome == Outcome::valid ? on_devices(run_of(outcome, 3, 1000), 2) : run_of(outcome, 3, 1000));
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

TEST_CASE("what was sent before the first step is written and read where there was anything", "[report][result_file]") {
  Result run = run_of(Outcome::valid, 1, 1000);
  CHECK_FALSE(json_of(run)["counted"].contains("start_messages"));
  CHECK_FALSE(read_back(json_of(run)).result.counted.start);
  run.predicted.start = run.counted.start = StartAmounts{4800, 6};
  Json const written = json_of(run);
  CHECK(written["predicted"]["start_sent_bytes"] == 4800);
  CHECK(written["counted"]["start_messages"] == 6);
  ResultFile const file = read_back(written);
  REQUIRE(file.result.counted.start);
  CHECK(file.result.counted.start->sent_bytes == 4800);
  CHECK(file.result.counted.start->messages == 6);
  Json half = written;
  half["counted"].erase("start_sent_bytes");
  CHECK_THAT(error_of(half), ContainsSubstring("/counted/start_sent_bytes"));
}

TEST_CASE("files of state are written and read where there were any", "[report][result_file]") {
  Result run = run_of(Outcome::valid, 4, 1000);
  CHECK_FALSE(json_of(run).contains("state_files"));
  CHECK_FALSE(read_back(json_of(run)).result.state_files);
  for (std::string const why : {"", "the system refuses"}) {
    run.state_files = {4, 3, 2, "/tmp", why};
    Json const written = json_of(run);
    CHECK(written["state_files"]["io_uring_ranks"] == 3);
    CHECK(written["state_files"]["direct_ranks"] == 2);
    CHECK(written["state_files"]["why_no_io_uring"].is_null() == why.empty());
    CHECK(read_back(written).result.state_files == run.state_files);
  }
}

TEST_CASE("files of state are told in words, with ranks where they differ", "[report][result_file]") {
  CHECK(to_string(FilesOfRanks{2, 2, 2, "/a", ""}) == "in /a by io_uring, past the system's cache");
  CHECK(to_string(FilesOfRanks{2, 0, 0, "/a", "no liburing"}) ==
        "in /a by pread and pwrite, by the system's cache (no io_uring: no liburing)");
  CHECK(to_string(FilesOfRanks{4, 3, 1, "/a", ""}) == "in /a by io_uring on 3 of 4 ranks, by pread and pwrite on the "
                                                      "others, past the system's cache on 1 of 4 ranks, by "
                                                      "the system's cache on the others");
}

TEST_CASE("the idle time of a pipeline is written and read where it was measured", "[report][result_file]") {
  Result run = run_of(Outcome::emulated, 2, 1000);
  CHECK_FALSE(read_back(json_of(run)).result.pipeline);
  run.pipeline = PipelineInfo{"1f1b",
                              {2, 4, 1},
                              3,
                              {.seconds = 2,
                               .busy = {1.5, 1.25},
                               .idle_share = 0.3125,
                               .idle_ratio = 0.4545,
                               .formula_share = 0.2,
                               .simulated_share = 0.25,
                               .message_seconds = 0.5,
                               .parts = {4, 2.75, 0.5, 0.25, 0.125, 0.5, -0.125}}};
  Json const written = json_of(run);
  CHECK(written["pipeline"]["time_parts"]["rest"] == -0.125);
  CHECK(json_of(read_back(written).result)["pipeline"] == written["pipeline"]);
  run.pipeline->bubble.formula_share.reset();
  CHECK(json_of(run)["pipeline"]["formula_idle_share"].is_null());
  CHECK_FALSE(read_back(json_of(run)).result.pipeline->bubble.formula_share);
  Json damaged = written;
  damaged["pipeline"]["busy_seconds"] = {1.5};
  CHECK_THAT(error_of(damaged), ContainsSubstring("/pipeline/busy_seconds has 1 elements, /pipeline/stages is 2"));
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
           {"/fom/value", -1, "/fom/value is -1, must not be negative"},
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
           {"/topology/rank_map", Json::array({{{"host", "n"}, {"cores", "0"}}}),
            "/topology/rank_map has 1 elements, /ranks 2"},
           {"/topology/rank_map/1/cores", 5, "/topology/rank_map/1/cores is 5, must be a string"},
           {"/machine/device", 5, "/machine/device is 5, must be a string"},
           {"/window/last_step", 6, "/window is from step 3 to 6, must lie in /samples/step"},
           {"/params/batch.global/value", nullptr, "/params/batch.global/value must be a number, a text"},
           {"/class", "huge", "/class is \"huge\", must be tiny, small, reference, large, custom"},
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

TEST_CASE("the class and what departs from it are read; files that are older than classes are custom",
          "[report][result_file]") {
  Result run = run_of(Outcome::valid, 2, 1000);
  run.benchmark_class = {"tiny", {}};
  Json json = json_of(run);
  CHECK(read_back(json).result.benchmark_class.name == "tiny");
  json["class_departures"] = {"data.steps = 9 instead of 300"};
  CHECK_THAT(error_of(json), ContainsSubstring("/class is \"tiny\", must be \"custom\""));
  json["class"] = "custom";
  CHECK(read_back(json).result.benchmark_class.departures.size() == 1);
  json.erase("class");
  json.erase("class_departures");
  CHECK(read_back(json).result.benchmark_class.name == "custom");
}

TEST_CASE("files that are older than devices' names and maps of ranks are read", "[report][result_file]") {
  Json json = json_of(on_devices(run_of(Outcome::valid, 2, 1000), 1));
  CHECK(read_back(json).result.machine.device == "NVIDIA H100");
  CHECK(read_back(json).result.topology.places.at(1) == RankPlace{"node", "1", "bus 1"});
  json["machine"].erase("device");
  json["topology"].erase("rank_map");
  json["topology"]["library_threads_per_rank"] = 3;
  CHECK(read_back(json).result.topology.threads_of_libraries == 3);
  CHECK(read_back(json).result.topology.busy_threads_per_rank() == 3);
  json["topology"].erase("library_threads_per_rank");
  CHECK(read_back(json).result.topology.busy_threads_per_rank() == 1);
  CHECK(read_back(json).result.machine.device.empty());
  CHECK(read_back(json).result.topology.places.empty());
}

TEST_CASE("a status that the file does not prove is refused", "[report][result_file]") {
  Json const network = {{"latency_seconds", 1e-3}, {"seconds_per_byte", 0}};
  Json const curve = {{"name", "loss-curve"}, {"passed", true}, {"value", 0}, {"limit", 1}, {"detail", ""}};
  Json const half = {{"value", 500}, {"unit", "tokens/s"}, {"ci95", {450, 550}}};
  struct Case {
    Outcome outcome;
    char const* place;
    Json value;
    char const* message;
  };
  for (auto const& [outcome, place, value, message] : std::vector<Case>{
           {Outcome::valid, "/verification", Json::array(), "VALID, and /verification has no check"},
           {Outcome::unreferenced, "/verification", Json::array(), "UNREFERENCED, and /verification has no check"},
           {Outcome::emulated, "/verification", Json::array(), "EMULATED, and /verification has no check"},
           {Outcome::valid, "/verification/1/name", "other", "VALID, and /verification has no loss-curve"},
           {Outcome::valid, "/verification/1/name", "first-step", "VALID, and /verification has no loss-curve"},
           {Outcome::valid, "/verification/1/name", "first-update", "first-update is not enough for this /class"},
           {Outcome::valid, "/verification/1/passed", false, "VALID, and a check failed"},
           {Outcome::emulated, "/verification/1/passed", false, "EMULATED, and a check failed"},
           {Outcome::invalid, "/verification/0/passed", true, "INVALID, and no check failed"},
           {Outcome::unreferenced, "/verification/0", curve, "UNREFERENCED, and /verification has a loss-curve"},
           {Outcome::stopped, "/verification", Json::array({curve}), "STOPPED, and /verification has checks"},
           {Outcome::valid, "/topology/emulated_network", network, "VALID, and /topology/emulated_network is not null"},
           {Outcome::unreferenced, "/topology/emulated_network", network, "/topology/emulated_network is not null"},
           {Outcome::valid, "/exit_code", 65, "VALID, and /exit_code must be 0"},
           {Outcome::stopped, "/exit_code", 0, "STOPPED, and /exit_code must be 75"},
           {Outcome::valid, "/fom", half, "its rate is 500, the steps of /window have 1000 tokens/s"},
           {Outcome::valid, "/fom", nullptr, "its rate is null in spite of /window"},
           {Outcome::valid, "/window", nullptr, "there is a rate without a /window"},
       }) {
    CAPTURE(to_string(outcome), place);
    Json json = json_of(run_of(outcome, 2, 1000));
    CHECK(error_of(json).empty());
    json[Json::json_pointer(place)] = value;
    CHECK_THAT(error_of(json), ContainsSubstring("a.json: /status is ") && ContainsSubstring(message));
  }
}

TEST_CASE("what a launcher did not tell is unknown, and nothing else is", "[report][result_file]") {
  Result run = run_of(Outcome::valid, 2, 1000);
  run.checks.push_back(
      {.name = "launch", .value = 2, .limit = std::nan(""), .detail = "no launcher told", .made = false});
  Json const json = json_of(run);
  CHECK(json["verification"][2]["passed"].is_null());
  CHECK(json["verification"][2]["limit"].is_null());
  Check const read = read_back(json).result.checks.at(2);
  CHECK_FALSE(read.made);
  CHECK_FALSE(read.failed());
  CHECK(read.value == 2);
  for (std::string const place : {"/verification/0/passed", "/verification/1/passed"}) {
    Json changed = json;
    changed[Json::json_pointer(place)] = nullptr;
    CHECK_THAT(error_of(changed), ContainsSubstring("a.json: " + place + " is null, must be true or false"));
  }
  Json launch_alone = json_of(run_of(Outcome::unreferenced, 2, 1000));
  launch_alone["verification"] = Json::array({json["verification"][2]});
  CHECK_THAT(error_of(launch_alone), ContainsSubstring("no check of /verification was made"));
}

TEST_CASE("the first update alone makes runs of classes that have no loss curve VALID, and others UNREFERENCED",
          "[report][result_file]") {
  for (std::string const name : {"tiny", "small", "reference", "large", "custom"})
    for (std::string const check : {"first-step", "first-update"})
      for (Outcome const outcome : {Outcome::valid, Outcome::unreferenced}) {
        Result run = run_of(outcome, 2, 1000);
        run.benchmark_class.name = name;
        run.checks = {{check, true, 0, 1e-6, "beside float64"}};
        bool const is_enough = check == "first-update" && (name == "reference" || name == "large");
        CAPTURE(name, check, to_string(outcome));
        CHECK(error_of(json_of(run)).empty() == ((outcome == Outcome::valid) == is_enough));
      }
}

TEST_CASE("an emulated network is read with the outcomes that may have one", "[report][result_file]") {
  for (Outcome const outcome : {Outcome::emulated, Outcome::invalid, Outcome::stopped}) {
    Result run = run_of(outcome, 2, 1000);
    run.topology.network = {{EmulatedLink{1e-6, 1e-10}, EmulatedLink{1e-3, 1e-9}}, true};
    Json json = json_of(run);
    CHECK(read_back(json).result.topology.network == run.topology.network);
    Json& network = json["topology"]["emulated_network"];
    network.erase("inside"); // of before links had their own values
    network.erase("node_port");
    CHECK(read_back(json).result.topology.network == EmulatedNetwork::uniform({1e-3, 1e-9}));
  }
}
