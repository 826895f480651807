// What a report says about the choices of a sweep.

#include "report/choices_section.hpp"

#include "report/scaling_section.hpp"
#include "support/result_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <fmt/format.h>

#include <algorithm>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A sweep on 4 ranks, whose choices are a.b=0, a.b=1, ...; the runs of each are its repeats.
ReportInput sweep_of(std::vector<std::vector<Result>> const& choices) {
  ReportInput input;
  ReportedStudy reported{
      "s",
      {.folder = "s", .kind = StudyKind::sweep, .deck = "d", .invariant = "the plan", .points = {}, .model = {}},
      {}};
  for (std::size_t choice = 0; choice < choices.size(); ++choice)
    for (std::size_t repeat = 0; repeat < choices[choice].size(); ++repeat) {
      std::string const cell = fmt::format("n4-{}", choice), name = fmt::format("{}-r{}", cell, repeat);
      reported.study.points.push_back({.name = name,
                                       .cell = cell,
                                       .choice = fmt::format("a.b={}", choice),
                                       .ranks = 4,
                                       .overrides = {},
                                       .predicted_seconds = 0.25,
                                       .predicted_bytes = {},
                                       .result = {}});
      reported.result_of_point[name] = input.results.size();
      input.results.push_back(named(name, choices[choice][repeat]));
    }
  input.studies = {reported};
  return input;
}

/// Of a step of 32 tokens.
Result run(double tokens_per_second, Outcome outcome = Outcome::valid) { return run_of(outcome, 4, tokens_per_second); }

Result with_choice(Result run, std::int64_t value) {
  run.parameters[0].value = value;
  return run;
}

std::string page_of(ReportInput const& input) { return page_markdown(study_section(input.studies[0], input)); }

/// Names of the figures.
std::vector<std::string> figures_of(ReportInput const& input) {
  std::vector<std::string> names;
  for (Block const& block : study_section(input.studies[0], input))
    if (auto const* const figure = std::get_if<Figure>(&block)) names.push_back(figure->name);
  return names;
}

} // namespace

TEST_CASE("choices have medians of their repeats, and speeds beside the first one", "[report][choices]") {
  ReportInput const input =
      sweep_of({{run(800), run(1000)}, {run(1600), run(1200), run(1500)}, {with_choice(run(500), 3)}});
  std::string const page = page_of(input);
  CHECK_THAT(page, ContainsSubstring("## Study s: sweep of d\n"));
  CHECK_THAT(page, ContainsSubstring("To be held the same, says study.json: the plan\n"));
  CHECK_THAT(page, ContainsSubstring(
                       "\n\nHeld the same in small.toml, FOM, by these results: 32 tokens per step on 4 ranks.\n"));
  CHECK_THAT(page, ContainsSubstring("\n| 1 | a.b=0 | 2 | 36 ms | 900 | 1.000 | 250 ms |\n"
                                     "| 2 | a.b=1 | 3 | 21.33 ms | 1500 | 1.667 (1.200 to 2.000) | 250 ms |\n"
                                     "| 3 | a.b=2 | 1 | 64 ms | 500 | 0.556 | 250 ms |\n"));
  CHECK_THAT(page, ContainsSubstring("\n| n4-1-r2 | a.b=1 | 4 | 1 | 1 |  | **VALID** |"));
  CHECK(figures_of(input) == std::vector<std::string>{"s-choices"});
}

TEST_CASE("every choice is a bar, and the legend has its keys", "[report][choices]") {
  ReportInput const input = sweep_of({{run(1000)}, {run(2000)}});
  for (Block const& block : study_section(input.studies[0], input))
    if (auto const* const figure = std::get_if<Figure>(&block)) {
      CHECK_THAT(figure->svg, ContainsSubstring(">1: a.b=0</text>") && ContainsSubstring(">2: a.b=1</text>"));
      CHECK_THAT(figure->svg, ContainsSubstring("rate (k tokens/s)") && !ContainsSubstring("ranks"));
    }
}

TEST_CASE("a choice without a rate keeps its number, and the next one is the first to be compared with",
          "[report][choices]") {
  std::string const page = page_of(sweep_of({{run(900, Outcome::invalid)}, {run(1000)}, {run(2000)}}));
  CHECK_THAT(page, ContainsSubstring("Left out of the plots: n4-0-r0 (INVALID).") && !ContainsSubstring("| 1 | a.b=0"));
  CHECK_THAT(page, ContainsSubstring("\n| 2 | a.b=1 | 1 | 32 ms | 1000 | 1.000 | 250 ms |\n"
                                     "| 3 | a.b=2 | 1 | 16 ms | 2000 | 2.000 | 250 ms |\n"));
}

TEST_CASE("what the choices of a sweep keep is counted, not believed", "[report][choices]") {
  Result tokens = run(1000), parameters = run(1000), unknown = run(1000);
  for (StepReport& step : tokens.samples) {
    step.tokens = 64;
    step.seconds = 0.064;
  }
  parameters.metrics["model_parameters"] = 2000;
  unknown.metrics.erase("model_parameters");
  for (auto const& [other, words] : std::vector<std::pair<Result, std::string>>{
           {tokens, "32 to 64 tokens per step"},
           {parameters, "models of 1000 to 2000 parameters"},
           {unknown, "a result does not say how many parameters its model has"}})
    CHECK_THAT(page_of(sweep_of({{run(1000)}, {other}})),
               ContainsSubstring("**Held the same in small.toml, FOM, by these results: " + words +
                                 ": this is no sweep; this is no sweep study.**\n"));
  CHECK_THAT(page_of(sweep_of({{run(1000)}})),
             ContainsSubstring("No line has results of several choices to prove it by.") &&
                 !ContainsSubstring("by these results"));
}

TEST_CASE("choices on other machines or on shared cores are not compared, and repeats with other keys are none",
          "[report][choices]") {
  Result machine = run(3000), shared = run(4000);
  machine.machine.cpu = "another processor";
  shared.topology.places[1].cores = "0";
  for (auto const& [other, words] :
       std::vector<std::pair<Result, std::string>>{{machine, "another processor"}, {shared, "4 threads on 3 cores"}}) {
    ReportInput const input = sweep_of({{run(1000)}, {other}, {run(1500)}});
    std::string const page = page_of(input);
    CHECK_THAT(page, ContainsSubstring("Choices of small.toml, FOM, " + words + ":\n"));
    CHECK_THAT(page, ContainsSubstring("| 1 | a.b=0 | 1 | 32 ms | 1000 | 1.000 | 250 ms |\n"
                                       "| 3 | a.b=2 | 1 | 21.33 ms | 1500 | 1.500 | 250 ms |\n"));
    std::vector<std::string> names = figures_of(input);
    std::ranges::sort(names);
    CHECK(names == std::vector<std::string>{"s-choices", "s-choices-2"});
  }
  std::string const page = page_of(sweep_of({{run(1000), with_choice(run(2000), 3)}, {with_choice(run(1500), 3)}}));
  CHECK_THAT(page, ContainsSubstring("small.toml, FOM, parallel.zero\\_stage=3"));
}

TEST_CASE("a sweep without any rate has no table of choices", "[report][choices]") {
  ReportInput const input = sweep_of({{run(900, Outcome::invalid)}, {run(900, Outcome::stopped)}});
  CHECK_THAT(page_of(input), ContainsSubstring("No result has a rate that may be compared."));
  CHECK(figures_of(input).empty());
}

namespace {

/// Of a model of so many parameters, which had the loss after so many steps; 0: never.
Result to_loss(double parameters, double steps) {
  Result run = run_of(Outcome::valid, 4, 100);
  run.metrics["model_parameters"] = parameters;
  if (steps == 0) return run;
  run.metrics["steps_to_stop_loss"] = steps;
  run.metrics["tokens_to_stop_loss"] = 32 * steps;
  run.metrics["seconds_to_stop_loss"] = 0.25 * steps;
  run.metrics["flops_to_stop_loss"] = 6 * parameters * 32 * steps;
  return run;
}

} // namespace

TEST_CASE("models that reach a held-out loss stand beside the one with the fewest operations", "[report][choices]") {
  ReportInput input = sweep_of({{to_loss(1000, 40), to_loss(1000, 20)}, {to_loss(4000, 5)}, {to_loss(8000, 0)}});
  input.studies[0].study.kind = StudyKind::to_loss;
  std::string const page = page_of(input);
  CHECK_THAT(page, ContainsSubstring("## Study s: to-loss of d\n"));
  // medians of 20 and 40 steps; 6 x 32 x parameters x steps
  CHECK_THAT(page, ContainsSubstring("\n| a.b=0 | 1000 | 2 | 2 | 30 | 960 | 7.5 s | 5.76e+06 | 1.50 x |\n"
                                     "| a.b=1 | 4000 | 1 | 1 | 5 | 160 | 1.25 s | 3.84e+06 | 1.00 x |\n"
                                     "| a.b=2 | 8000 | 1 | 0 | **never** | "));
  CHECK_THAT(page, ContainsSubstring("by these results: 32 tokens per step on 4 ranks.\n"));
  CHECK_THAT(page, !ContainsSubstring("this is no"));
  CHECK(figures_of(input) == std::vector<std::string>{"s-flops-to-loss", "s-loss-over-flops"});
}
