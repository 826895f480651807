// Which results lie on one line, and what the lines say.

#include "report/scaling.hpp"

#include "report/result_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::WithinRel;

namespace {

std::vector<NamedResult const*> all_of(std::vector<NamedResult> const& results) {
  std::vector<NamedResult const*> pointers;
  for (NamedResult const& result : results) pointers.push_back(&result);
  return pointers;
}

} // namespace

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
