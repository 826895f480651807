#include "result/result.hpp"

#include "core/error.hpp"
#include "report/output.hpp"
#include "result/stop_cost.hpp"
#include "support/deck_fixture.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <limits>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Matches;
using Json = nlohmann::json;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

Result result(Outcome outcome) {
  Result run;
  Deck const deck = read_small();
  run.outcome = outcome;
  run.deck = deck_label(deck);
  run.deck_hash = deck_hash(deck);
  run.golden_key = golden_key(deck, 2);
  run.parameters = resolved_parameters(deck, 2);
  run.code = {"0.1.0", "1a2b3c4d", false, describe_compiler(), "4.5.1 Serial"};
  run.machine = describe_machine();
  run.providers = {{"onednn", "kokkos"}, "flash"};
  run.machine.cores = 2;
  run.predicted = {{{"parameters", 100}, {"data", 11}}, 64, 3, 1000};
  run.counted = run.predicted;
  for (std::int64_t i = 1; i <= 4; ++i) {
    StepReport step;
    step.step = i;
    step.steps = 4;
    step.loss = 5.5 - static_cast<double>(i);
    step.seconds = i == 1 ? 9.0 : static_cast<double>(i);
    step.tokens = 128;
    step.phase_seconds[Phase::gemm] = 0.5;
    run.samples.push_back(step);
  }
  run.samples.back().validation_loss = 2.25;
  run.samples.back().loss_scale = 512;
  run.samples.back().skipped = true;
  run.ranks = {{0, "node-a", 3.0, 2.0, 0.25}, {1, "node-b", 3.0, 2.5, 0.125}};
  run.window = {2, 4};
  run.tokens_per_second = {42.5, 40, 45};
  run.metrics = {{"mfu", 0.5}};
  run.wall_seconds = 10;
  run.checks = {{"finite", true, 0, 0, "losses"}};
  return run;
}

/// And gives it back.
void prepare(std::string const& folder) { static_cast<void>(prepare_output_folder(folder)); }

} // namespace

TEST_CASE("what a training takes to a held-out loss ends with the first one that is low enough", "[result]") {
  std::vector<StepReport> samples(6);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].seconds = 0.5;
    samples[i].tokens = 100;
  }
  samples[1].validation_loss = 4;
  samples[2].skipped = true;
  samples[3].validation_loss = 2.5;
  samples[5].validation_loss = 2;
  std::optional<StopCost> const cost = cost_to(2.5, samples);
  REQUIRE(cost);
  CHECK(cost->steps == 4);
  CHECK(cost->seconds == 2);
  CHECK(cost->tokens == 300);
  CHECK(cost_to(2.4, samples)->steps == 6);
  CHECK_FALSE(cost_to(1.9, samples));
  CHECK_FALSE(cost_to(0, samples));
}

TEST_CASE("tokens of skipped steps are not in the rate, but their time is", "[result]") {
  Result run = result(Outcome::unreferenced);
  run.samples.clear();
  for (std::int64_t number = 1; number <= 4; ++number) {
    StepReport& step = run.samples.emplace_back();
    step.step = number;
    step.seconds = 0.5;
    step.tokens = 100;
    step.skipped = number == 3;
  }
  run.window = {2, 4};
  CHECK(trained_tokens(run) == 200);
  CHECK(rate_of_window(run)->value == 200 / 1.5);
  for (StepReport& step : run.samples) step.skipped = true;
  CHECK(rate_of_window(run)->value == 0);
  CHECK(rate_of_window(run)->high == 0);
  run.window = {};
  CHECK_FALSE(rate_of_window(run));
}

TEST_CASE("the result file holds status, deck, machine and measurements", "[result]") {
  Json const json = Json::parse(result_json(result(Outcome::valid)));
  CHECK(json["schema_version"] == 1);
  CHECK(json["kind"] == "run");
  CHECK(json["status"] == "VALID");
  CHECK(json["machine"]["device"].is_null());
  CHECK(json["providers"] == Json{{"gemm", {"onednn", "kokkos"}}, {"attention", "flash"}});
  CHECK(json["exit_code"] == 0);
  CHECK_THAT(json["time"].get<std::string>(), Matches("20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-9:]{8}Z"));
  CHECK(json["params"]["batch.micro"] == Json{{"value", 2}, {"unit", "samples"}, {"origin", "deck:12"}});
  CHECK(json["params"]["batch.accumulation"]["value"] == 2);
  CHECK(json["params"]["data.files"]["value"] == Json{"inputs/data/corpus.txt"});
  CHECK(json["params"]["optimizer.betas"]["value"] == Json{0.9, 0.95});
  CHECK(json["code"]["git"] == "1a2b3c4d");
  CHECK(!json["code"]["compiler"].get<std::string>().empty());
  CHECK(json["predicted"]["memory_bytes"] == Json{{"parameters", 100}, {"data", 11}, {"total", 111}});
  CHECK(json["counted"]["messages"] == 3);
  CHECK(json["energy"].is_null());
  CHECK(json["data"] ==
        Json{{"bytes", 0}, {"seconds", 0.0}, {"bytes_per_second", nullptr}, {"share_of_wall_time", 0.0}});
  CHECK(!json.contains("kernels"));
  CHECK(json["samples"]["loss"] == Json{4.5, 3.5, 2.5, 1.5});
  CHECK(json["samples"]["held_out"] == Json{nullptr, nullptr, nullptr, 2.25});
  CHECK(json["samples"]["phases"]["gemm"].size() == 4);
  CHECK(json["samples"]["loss_scale"] == Json{nullptr, nullptr, nullptr, 512.0});
  CHECK(json["samples"]["skipped"] == Json{false, false, false, true});
  CHECK(json["straggler"] == Json{{"rank", 1}, {"host", "node-b"}});
  CHECK(json["metrics"]["mfu"] == 0.5);
  CHECK(json["verification"][0]["name"] == "finite");
}

TEST_CASE("the result file holds what was chosen by measurement, and the times of all that were tried", "[result]") {
  Result run = result(Outcome::valid);
  CHECK(Json::parse(result_json(run))["chosen"] == Json::object());
  run.chosen = {{"comm.reduce", "linear", 2, 4096, {{"binomial", 2e-5}, {"linear", 1e-5}}}};
  CHECK(Json::parse(result_json(run))["chosen"] == Json{{"comm.reduce",
                                                         {{"algorithm", "linear"},
                                                          {"ranks", 2},
                                                          {"bytes", 4096},
                                                          {"seconds", {{"binomial", 2e-5}, {"linear", 1e-5}}}}}});
}

TEST_CASE("energy is told where there are meters, reading and writing as rates", "[result]") {
  Result run = result(Outcome::valid);
  run.energy = EnergyInfo{.host_joules = std::nullopt, .device_joules = 250, .seconds = 5, .tokens = 1000};
  run.data = {.bytes = 1000, .seconds = 0.5};
  run.checkpoints.reads = {.bytes = 4000, .seconds = 2};
  Json const json = Json::parse(result_json(run));
  CHECK(json["energy"] == Json{{"host_joules", nullptr}, {"device_joules", 250.0}, {"seconds", 5.0}, {"tokens", 1000}});
  CHECK(json["data"]["bytes_per_second"] == 2000);
  CHECK(json["data"]["share_of_wall_time"] == 0.05);
  CHECK(json["checkpoints"]["bytes_read_per_second"] == 2000);
  CHECK(json["checkpoints"]["bytes_per_second"].is_null());
  CHECK(energy_line(*run.energy) == "energy of 5.00 s: devices 250 J (50 W, 0.25 J per token)");
}

TEST_CASE("phases that were not timed are null, what communication exposes is not", "[result]") {
  Result run = result(Outcome::valid);
  for (StepReport& sample : run.samples) sample.phases_are_timed = false;
  Json const phases = Json::parse(result_json(run))["samples"]["phases"];
  CHECK(phases["comm"] == Json{nullptr, nullptr, nullptr, nullptr});
  CHECK(phases["exposed communication"].size() == 4);
  CHECK(phases["exposed communication"][0].is_number());
}

TEST_CASE("kernels that were timed are in the file, in order", "[result]") {
  Result run = result(Outcome::valid);
  run.kernels = {{"trainstone::gemm", 49, 0.25, 1e9, 2e6}, {"trainstone::sum", 1, 0.5, 0, 0}};
  Json const rows = Json::parse(result_json(run))["kernels"];
  CHECK(rows[0] ==
        Json{{"label", "trainstone::gemm"}, {"launches", 49.0}, {"seconds", 0.25}, {"flops", 1e9}, {"bytes", 2e6}});
  CHECK(rows[1]["label"] == "trainstone::sum");
}

TEST_CASE("step statistics are those of the window", "[result]") {
  Json const json = Json::parse(result_json(result(Outcome::valid)));
  CHECK(json["stats"]["step_seconds"]["median"] == 3);
  CHECK(json["stats"]["step_seconds"]["maximum"] == 4); // not 9, the warm-up step
}

TEST_CASE("the result of a failed verification has no figure of merit", "[result]") {
  Json const failed = Json::parse(result_json(result(Outcome::invalid)));
  CHECK(failed["fom"].is_null());
  CHECK(failed["unverified_rate"]["value"] == 42.5);
  CHECK(failed["exit_code"] == 65);
  Json const passed = Json::parse(result_json(result(Outcome::unreferenced)));
  CHECK(passed["status"] == "UNREFERENCED");
  CHECK(passed["fom"] == Json{{"value", 42.5}, {"unit", "tokens/s"}, {"ci95", {40.0, 45.0}}});
  CHECK(passed["unverified_rate"].is_null());
  CHECK(passed["emulated_rate"].is_null());
}

TEST_CASE("the result of an emulated run has a rate and no figure of merit", "[result]") {
  Json const json = Json::parse(result_json(result(Outcome::emulated)));
  CHECK(json["status"] == "EMULATED");
  CHECK(json["exit_code"] == 0);
  CHECK(json["fom"].is_null());
  CHECK(json["unverified_rate"].is_null());
  CHECK(json["emulated_rate"]["value"] == 42.5);
}

TEST_CASE("NaN and infinity are never written", "[result]") {
  Result run = result(Outcome::invalid);
  run.samples[1].loss = not_a_number;
  run.samples[1].phase_seconds[Phase::other] = not_a_number;
  run.samples[2].norm = std::numeric_limits<double>::infinity();
  run.samples[3].validation_loss = not_a_number;
  run.tokens_per_second = {not_a_number, -std::numeric_limits<double>::infinity(), not_a_number};
  run.metrics["mfu"] = not_a_number;
  run.checks[0].value = not_a_number;
  run.peaks.gemm_flops_per_second = not_a_number;
  std::string const text = result_json(run);
  for (char const* word : {"nan", "NaN", "inf", "Inf"}) CHECK_THAT(text, !ContainsSubstring(std::string(" ") + word));
  Json const json = Json::parse(text); // a strict parser: NaN would be a syntax error
  CHECK(json["samples"]["loss"][1].is_null());
  CHECK(json["metrics"]["mfu"].is_null());
}

TEST_CASE("the shortest possible result is valid JSON", "[result]") {
  Json const json = Json::parse(result_json(Result{}));
  CHECK(json["stats"]["step_seconds"].is_null());
  CHECK(json["straggler"].is_null());
}

TEST_CASE("the machine is described without secrets", "[result]") {
  setenv("TRAINSTONE_TEST_SECRET", "hunter2", 1);
  setenv("SLURM_JOB_ID", "4711", 1);
  MachineInfo const machine = describe_machine();
  unsetenv("SLURM_JOB_ID");
  unsetenv("TRAINSTONE_TEST_SECRET");
  CHECK(!machine.cpu.empty());
  CHECK(machine.memory_bytes > 1u << 20);
  CHECK(machine.environment.at("SLURM_JOB_ID") == "4711");
  CHECK(machine.environment.count("TRAINSTONE_TEST_SECRET") == 0);
  CHECK(machine.environment.count("PATH") == 0);
}

TEST_CASE("the result is written whole, under its name, and replaces an older one", "[result]") {
  TemporaryFolder const folder;
  FolderLock const lock = prepare_output_folder(folder.path());
  CHECK(write_result(folder.path(), result(Outcome::valid)) == folder.path() + "/result.json");
  write_result(folder.path(), result(Outcome::invalid));
  std::ifstream file(folder.path() + "/result.json");
  CHECK(Json::parse(file)["status"] == "INVALID");
  CHECK(folder.files() == std::vector<std::string>{".result.lock", "result.json"});
}

TEST_CASE("the output folder is made with its parents and stays empty", "[result]") {
  TemporaryFolder const folder;
  prepare(folder.path() + "/a/b/");
  prepare(folder.path() + "/a/b"); // one that exists
  CHECK(folder.files() == std::vector<std::string>{"a", "a/b"});
}

TEST_CASE("an older result is removed before a run", "[result]") {
  TemporaryFolder const folder;
  std::ofstream(folder.path() + "/result.json") << "{}";
  prepare(folder.path());
  CHECK(folder.files().empty());
}

TEST_CASE("a folder that another run works in is refused, and its result stays", "[result]") {
  TemporaryFolder const folder;
  FolderLock const lock = prepare_output_folder(folder.path() + "/a");
  write_result(folder.path() + "/a", result(Outcome::valid));
  CHECK(input_error_of([&] { prepare(folder.path() + "/a"); }) ==
        "--out " + folder.path() + "/a: another run works in it");
  CHECK(folder.files() == std::vector<std::string>{"a", "a/.result.lock", "a/result.json"});
}

TEST_CASE("a refusal removes no folder that was there before", "[result]") {
  TemporaryFolder const folder;
  std::filesystem::create_directories(folder.path() + "/a/result.json"); // nobody's result
  std::ofstream(folder.path() + "/a/theirs") << "x";
  CHECK_THAT(input_error_of([&] { prepare(folder.path() + "/a"); }), ContainsSubstring("is a folder"));
  CHECK(folder.files() == std::vector<std::string>{"a", "a/result.json", "a/theirs"});
}

TEST_CASE("an output folder that cannot be written is refused and nothing stays behind", "[result]") {
  TemporaryFolder const folder;
  std::ofstream(folder.path() + "/file") << "x";
  std::string const message = input_error_of([&] { prepare(folder.path() + "/file/out"); });
  CHECK_THAT(message, ContainsSubstring("file/out: cannot write into this folder") && ContainsSubstring("writable"));
  CHECK_THAT(input_error_of([&] { prepare(folder.path() + "/file"); }), ContainsSubstring("cannot write"));
  CHECK_THAT(input_error_of([] { prepare(""); }), ContainsSubstring("--out is empty"));
  CHECK_THAT(input_error_of([] { prepare("/proc/trainstone/out"); }), ContainsSubstring("cannot write"));
  CHECK(folder.files() == std::vector<std::string>{"file"});
}

TEST_CASE("a result that cannot be written leaves nothing half-written", "[result]") {
  TemporaryFolder const folder;
  std::filesystem::create_directory(folder.path() + "/result.json"); // in the way of the rename
  CHECK_THROWS_AS(write_result(folder.path(), result(Outcome::valid)), Error);
  CHECK(folder.files() == std::vector<std::string>{"result.json"});
}
