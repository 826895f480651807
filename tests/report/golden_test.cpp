#include "report/golden.hpp"

#include "core/error.hpp"
#include "report/deck_fixture.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <fstream>
#include <limits>

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

/// The curve of `steps` steps, where the steps [begin, end) differ by a factor.
Check compare(int steps, int begin, int end, double factor) {
  std::vector<double> losses = curve(steps).losses;
  for (int i = begin; i < end; ++i) losses[static_cast<std::size_t>(i)] *= factor;
  return compare_with_golden(curve(steps), losses, false);
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
  CHECK_THROWS_AS(record_golden_first_step(path, "a", {std::numeric_limits<double>::quiet_NaN(), 1, ""}), Error);
  std::ofstream(path) << "{\"schema_version\": 1, \"curves\": {}, \"first_steps\": {\"a\": {\"loss\": 1}}}";
  CHECK_THAT(input_error_of([&] { find_golden_first_step(path, "a"); }),
             ContainsSubstring("damaged entry a of \"first_steps\""));
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

TEST_CASE("each of the first ten steps is held to 1e-3", "[golden]") {
  for (int const step : {0, 5, 9}) {
    CHECK(compare(30, step, step + 1, 1 + 0.9e-3).passed);
    CHECK(!compare(30, step, step + 1, 1 + 1.1e-3).passed);
    CHECK(!compare(30, step, step + 1, 1 - 1.1e-3).passed);
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
  Check const check = compare_with_golden(curve(30), curve(29).losses, false);
  CHECK(!check.passed);
  CHECK(check.detail == "the run has 29 steps, the golden curve 30");
  CHECK(compare_with_golden(curve(30), curve(29).losses, true).passed);
  CHECK(compare_with_golden(curve(29), curve(30).losses, true).passed);
  CHECK(!compare_with_golden(curve(30), {}, true).passed);
}
