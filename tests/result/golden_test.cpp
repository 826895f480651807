#include "result/golden_checks.hpp"

#include "core/error.hpp"
#include "model/parameter_table.hpp"
#include "result/released_curves.hpp"
#include "support/deck_fixture.hpp"
#include "support/fixtures.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include <fstream>
#include <limits>
#include <tuple>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Falls from 5.5, every element distinct.
GoldenCurve curve(int steps) {
  GoldenCurve golden{{}, "0.1.0 4.5.1 Serial 2 ranks"};
  for (int i = 0; i < steps; ++i) golden.losses.push_back(5.5 - 0.03 * i);
  return golden;
}

/// "loss-curve" of a curve that has nothing else.
Check compare_losses(int golden_steps, std::vector<double> const& losses, bool may_stop_early = false) {
  auto const checks =
      compare_with_golden(curve(golden_steps), {.losses = losses, .early = {}, .may_stop_early = may_stop_early});
  REQUIRE(checks.size() == 1);
  return checks[0];
}

/// The curve of `steps` steps, where the steps [begin, end) differ by a factor.
Check compare(int steps, int begin, int end, double factor) {
  std::vector<double> losses = curve(steps).losses;
  for (int i = begin; i < end; ++i) losses[static_cast<std::size_t>(i)] *= factor;
  return compare_losses(steps, losses);
}

/// Of a training of ten steps or more: every value distinct.
EarlySteps early() {
  EarlySteps early;
  for (int i = 0; i < 10; ++i) early.norms.push_back(2.5 - 0.1 * i);
  for (int kind = 0; kind < tensor_kinds; ++kind) early.changes.push_back(1e-3 * (kind + 1));
  early.changed_after = 10;
  return early;
}

/// A curve of 30 steps with all that there is.
GoldenCurve full_curve() {
  GoldenCurve golden = curve(30);
  golden.early = early();
  return golden;
}

std::vector<Check> compare_early(EarlySteps const& run, GoldenCurve const& golden = full_curve(),
                                 Products products = Products::exact) {
  return compare_with_golden(golden, {.losses = golden.losses, .early = run, .products = products});
}

/// The names of those that failed.
std::string failures(std::vector<Check> const& checks) {
  std::string names;
  for (Check const& check : checks) names += check.passed ? "" : check.name + " ";
  return names;
}

} // namespace

TEST_CASE("golden curves lie beside the deck", "[golden]") {
  CHECK(golden_path("inputs/quickstart.toml") == "inputs/golden/quickstart.json");
  CHECK(golden_path("quickstart.toml") == "golden/quickstart.json");
}

TEST_CASE("a recorded curve is found under its key to the last bit", "[golden]") {
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/golden/deck.json";
  CHECK(!find_golden_curve(path, "a"));
  GoldenCurve first = curve(3);
  first.losses[1] = 1.0 / 3.0;
  record_golden_curve(path, "a", first);
  record_golden_curve(path, "b", curve(5));
  CHECK(find_golden_curve(path, "a")->losses == first.losses);
  CHECK(find_golden_curve(path, "a")->recorded_with == first.recorded_with);
  CHECK(find_golden_curve(path, "b")->losses == curve(5).losses);
  CHECK(!find_golden_curve(path, "c"));
  record_golden_curve(path, "a", curve(2));
  CHECK(find_golden_curve(path, "a")->losses == curve(2).losses);
  CHECK(folder.files() == std::vector<std::string>{"golden", "golden/deck.json"});
}

TEST_CASE("a damaged golden file is refused by name", "[golden]") {
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/deck.json";
  auto const error_with = [&](std::string const& text) {
    std::ofstream(path) << text;
    return input_error_of([&] { find_golden_curve(path, "a"); });
  };
  CHECK_THAT(error_with(""), ContainsSubstring(path + ": no golden curves"));
  CHECK_THAT(error_with("{\"schema_version\": 1"), ContainsSubstring("no golden curves"));
  CHECK_THAT(error_with("{\"schema_version\": 1}"), ContainsSubstring("no golden curves"));
  CHECK_THAT(error_with("{\"schema_version\": 1, \"curves\": []}"), ContainsSubstring("\"curves\" must be an object"));
  CHECK_THAT(error_with("{\"schema_version\": 2, \"curves\": {}}"), ContainsSubstring("must be 1"));
  CHECK_THAT(error_with("{\"schema_version\": 1, \"curves\": {\"a\": {}}}"),
             ContainsSubstring("damaged entry a of \"curves\""));
}

TEST_CASE("a recorded first step is found under its key to the last bit, beside curves", "[golden]") {
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/golden/deck.json";
  CHECK(!find_golden_first_step(path, "a"));
  record_golden_first_step(path, "a", {1.0 / 3.0, 256, "someone"});
  CHECK(!find_golden_curve(path, "a"));
  record_golden_curve(path, "b", curve(2));
  record_golden_first_step(path, "c", {2, 1, "another"});
  std::optional<GoldenFirstStep> const first = find_golden_first_step(path, "a");
  REQUIRE(first);
  CHECK(first->loss == 1.0 / 3.0);
  CHECK(first->positions == 256);
  CHECK(first->recorded_with == "someone");
  CHECK(!find_golden_first_step(path, "b"));
  CHECK(find_golden_curve(path, "b")->losses == curve(2).losses);
  CHECK(!first->update);
  CHECK_THROWS_AS(record_golden_first_step(path, "a", {std::numeric_limits<double>::quiet_NaN(), 1, ""}), Error);
  std::ofstream(path) << "{\"schema_version\": 1, \"curves\": {}, \"first_steps\": {\"a\": {\"loss\": 1}}}";
  CHECK_THAT(input_error_of([&] { find_golden_first_step(path, "a"); }),
             ContainsSubstring("damaged entry a of \"first_steps\""));
}

TEST_CASE("a first step's update is read in the order of the kinds of tensors", "[golden]") {
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/deck.json";
  nlohmann::ordered_json gradients, changes;
  for (int kind = tensor_kinds - 1; kind >= 0; --kind) { // a file may have them in any order
    gradients[std::string(to_string(static_cast<Tensor>(kind)))] = kind + 0.5;
    changes[std::string(to_string(static_cast<Tensor>(kind)))] = kind / 8.0;
  }
  nlohmann::ordered_json json{
      {"schema_version", 1},
      {"curves", nlohmann::ordered_json::object()},
      {"first_steps",
       {{"a",
         {{"recorded_with", "someone"},
          {"positions", 8},
          {"loss", 5.5},
          {"update", {{"norm", 2.5}, {"loss_after", 4.5}, {"gradients", gradients}, {"changes", changes}}}}}}}};
  auto const read = [&] {
    std::ofstream(path) << json;
    return find_golden_first_step(path, "a")->update;
  };
  std::optional<FirstUpdate> const update = read();
  REQUIRE(update);
  CHECK(update->norm == 2.5);
  CHECK(update->loss_after == 4.5);
  for (std::size_t kind = 0; kind < tensor_kinds; ++kind) {
    CHECK(update->gradients.at(kind) == static_cast<double>(kind) + 0.5);
    CHECK(update->changes.at(kind) == static_cast<double>(kind) / 8);
  }
  json["first_steps"]["a"]["update"]["gradients"].erase("wpe");
  CHECK_THAT(input_error_of(read), ContainsSubstring("/update/gradients/wpe"));
  json["first_steps"]["a"]["update"] = "none";
  CHECK_THAT(input_error_of(read), ContainsSubstring("/update/norm"));
}

TEST_CASE("a curve that is not finite is never recorded", "[golden]") {
  TemporaryFolder const folder;
  GoldenCurve bad = curve(3);
  bad.losses[2] = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(record_golden_curve(folder.path() + "/deck.json", "a", bad), Error);
  CHECK_THROWS_AS(record_golden_curve(folder.path() + "/deck.json", "a", GoldenCurve{}), Error);
  CHECK(folder.files().empty());
}

TEST_CASE("the same curve passes", "[golden]") {
  for (int const steps : {1, 9, 10, 11, 19, 20, 101}) {
    Check const check = compare(steps, 0, 0, 1);
    CHECK(check.name == "loss-curve");
    CHECK(check.passed);
    CHECK(check.value == 0);
  }
}

TEST_CASE("each of the first ten steps is held to 1e-5", "[golden]") {
  for (int const step : {0, 5, 9}) {
    CHECK(compare(30, step, step + 1, 1 + 0.9e-5).passed);
    CHECK(!compare(30, step, step + 1, 1 + 1.1e-5).passed);
    CHECK(!compare(30, step, step + 1, 1 - 1.1e-5).passed);
  }
  CHECK(compare(30, 10, 11, 1.1).passed); // between the two windows
}

TEST_CASE("the mean of the last ten steps is held to 2 percent", "[golden]") {
  CHECK(compare(30, 20, 30, 1.019).passed);
  Check const failed = compare(30, 20, 30, 1.021);
  CHECK(!failed.passed);
  CHECK(failed.limit == golden_last_bound);
  CHECK(failed.value > 0.0209);
  CHECK(compare(30, 25, 26, 1.1).passed); // one step of ten moves the mean by 1 percent
}

TEST_CASE("short trainings are held to the first bound, then to the second", "[golden]") {
  CHECK(!compare(5, 4, 5, 1.002).passed);
  CHECK(compare(13, 10, 13, 1.019).passed); // the last ten without the first ten: three
  CHECK(!compare(13, 10, 13, 1.021).passed);
}

TEST_CASE("a loss that is not a number fails", "[golden]") {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  for (int const step : {0, 5, 9, 29}) CHECK(!compare(30, step, step + 1, nan).passed);
}

TEST_CASE("curves of different length fail unless the training may stop early", "[golden]") {
  Check const check = compare_losses(30, curve(29).losses);
  CHECK(!check.passed);
  CHECK(check.detail == "the run has 29 steps, the golden curve 30");
  CHECK(compare_losses(30, curve(29).losses, true).passed);
  CHECK(compare_losses(29, curve(30).losses, true).passed);
  CHECK(!compare_losses(30, {}, true).passed);
}

TEST_CASE("norms of gradients and changes of parameters are held to their bounds", "[golden]") {
  CHECK(compare_early(early()).size() == 3);
  CHECK(failures(compare_early(early())).empty());
  double const nan = std::numeric_limits<double>::quiet_NaN();
  for (auto const& [factor, norms, changes] : {std::tuple{1 + 1.9e-6, "", ""},
                                               {1 - 2.1e-6, "gradient-norms ", ""},
                                               {1 + 1.9e-5, "gradient-norms ", ""},
                                               {1 - 2.1e-5, "gradient-norms ", "parameter-changes "},
                                               {nan, "gradient-norms ", "parameter-changes "}}) {
    INFO("a factor of " << factor);
    for (std::size_t const place : {0, 4, 9}) {
      EarlySteps run = early();
      run.norms[place] *= factor;
      CHECK(failures(compare_early(run)) == norms);
      run = early();
      run.changes[place] *= factor;
      CHECK(failures(compare_early(run)) == changes);
    }
  }
}

TEST_CASE("the largest difference is named", "[golden]") {
  EarlySteps run = early();
  run.norms[3] *= 1.01;
  run.norms[5] *= 1.02;
  run.changes[1] = 0;
  auto const checks = compare_early(run);
  CHECK(checks[1].detail == "first 10 steps, largest difference in step 6");
  CHECK(checks[2].detail == "mean of 16 kinds after 10 steps, largest difference in wpe");
  CHECK(checks[2].value == 1);
}

TEST_CASE("what a run does not know of a golden curve fails", "[golden]") {
  CHECK(failures(compare_early({})) == "gradient-norms parameter-changes ");
  EarlySteps run = early();
  run.changed_after = 9;
  CHECK(failures(compare_early(run)) == "parameter-changes ");
  run = early();
  run.norms.pop_back();
  CHECK(failures(compare_early(run)) == "gradient-norms ");
  GoldenCurve const only_losses = curve(30);
  CHECK(compare_early(early(), only_losses).size() == 1);
}

TEST_CASE("parameters that never change in a golden curve must not change in a run", "[golden]") {
  GoldenCurve golden = full_curve();
  golden.early.changes[0] = 0;
  EarlySteps run = golden.early;
  CHECK(failures(compare_early(run, golden)).empty());
  run.changes[0] = 1e-30;
  CHECK(failures(compare_early(run, golden)) == "parameter-changes ");
}

TEST_CASE("a curve's own bounds count, and where inputs are rounded the wider ones", "[golden]") {
  GoldenCurve golden = full_curve();
  golden.bounds = {1e-1, 1e-9, 1e-1, "a test"};
  EarlySteps run = early();
  run.norms[0] *= 1 + 1e-8;
  run.changes[0] *= 1.09;
  CHECK(failures(compare_early(run, golden)) == "gradient-norms ");
  CHECK(failures(compare_early(run, golden, Products::rounded)).empty());
  golden.bounds_of_bf16 = {1e-1, 1e-9, 1e-9, "a test"}; // narrow as they are, they count for bf16 alone
  CHECK(failures(compare_early(run, golden, Products::rounded)).empty());
  CHECK(failures(compare_with_golden(
            golden, {.losses = golden.losses, .early = run, .products = Products::rounded, .is_bf16_of_fp32 = true})) ==
        "gradient-norms parameter-changes ");
  GoldenBounds const exact = golden_bounds(Products::exact), rounded = golden_bounds(Products::rounded);
  CHECK(exact.losses < rounded.losses);
  CHECK(exact.norms < rounded.norms);
  CHECK(exact.changes < rounded.changes);
}

TEST_CASE("norms, changes and bounds are recorded to the last bit", "[golden]") {
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/deck.json";
  GoldenCurve golden = full_curve();
  golden.early.norms[2] = 1.0 / 3;
  golden.early.changes[7] = 1.0 / 7;
  golden.bounds = {1e-4, 1e-5, 1e-6, "a test"};
  golden.bounds_of_bf16 = {1e-2, 1e-3, 1.0 / 7, "another test"};
  record_golden_curve(path, "a", golden);
  GoldenCurve const found = find_golden_curve(path, "a").value();
  CHECK(found.early == golden.early);
  CHECK(found.bounds->losses == 1e-4);
  CHECK(found.bounds->norms == 1e-5);
  CHECK(found.bounds->changes == 1e-6);
  CHECK(found.bounds->derived_from == "a test");
  CHECK(found.bounds_of_bf16->losses == 1e-2);
  CHECK(found.bounds_of_bf16->norms == 1e-3);
  CHECK(found.bounds_of_bf16->changes == 1.0 / 7);
  CHECK(found.bounds_of_bf16->derived_from == "another test");
  golden.early.norms[2] = std::numeric_limits<double>::quiet_NaN(); // a step that was skipped
  record_golden_curve(path, "a", golden);
  CHECK(find_golden_curve(path, "a")->early.norms.empty());
  CHECK(find_golden_curve(path, "a")->early.changes == golden.early.changes);
}

TEST_CASE("a golden file has a digest, the same as xxhsum prints", "[golden]") {
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/deck.json";
  CHECK(find_golden(path, "a").digest.empty());
  std::ofstream(path) << R"({"schema_version": 1, "curves": {}})";
  CHECK(find_golden(path, "a").digest == "ef7d3745dd1eb9c8");
  CHECK(!find_golden(path, "a").curve);
}

TEST_CASE("the digests of released golden files are those of the files", "[golden]") {
  for (ReleasedCurves const& released : released_curves) {
    INFO(released.deck);
    std::string const path = inputs_folder() / "golden" / fmt::format("{}.json", released.deck);
    CHECK(find_golden(path, "").digest == released.digest);
    CHECK(is_released(released.digest));
  }
  CHECK(!is_released(""));
  CHECK(!is_released("0123456789abcdef"));
}
