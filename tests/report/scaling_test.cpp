// Which results lie on one line, and what the lines say.

#include "report/scaling.hpp"

#include "report/scaling_section.hpp"
#include "support/result_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <functional>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

std::vector<NamedResult const*> all_of(std::vector<NamedResult> const& results) {
  std::vector<NamedResult const*> pointers;
  for (NamedResult const& result : results) pointers.push_back(&result);
  return pointers;
}

std::vector<ScalingLine> lines_of(std::vector<NamedResult> const& results, Told told = Told::by_values) {
  return scaling_lines(all_of(results), told, false);
}

/// A VALID run of so many tokens per step, and otherwise as run_of() has it.
Result run_with_tokens(std::int64_t ranks, std::int64_t tokens) {
  Result run = run_of(Outcome::valid, ranks, 1000);
  for (StepReport& step : run.samples) {
    step.tokens = tokens;
    step.seconds = static_cast<double>(tokens) / 1000;
  }
  return run;
}

} // namespace

TEST_CASE("rates at a number of ranks are medians of repeats, or a single run's with its interval",
          "[report][scaling]") {
  std::vector<NamedResult> const results{
      named("a", run_of(Outcome::valid, 1, 1000)), named("b", run_of(Outcome::valid, 2, 1500)),
      named("c", run_of(Outcome::valid, 2, 1700)), named("d", run_of(Outcome::valid, 2, 1600))};
  auto const lines = scaling_lines(all_of(results), Told::by_values, false);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].name == "small.toml, FOM");
  REQUIRE(lines[0].rates.size() == 2);
  CHECK(lines[0].rates[0].low == 900);
  CHECK(lines[0].rates[1].value == 1600);
  CHECK(lines[0].rates[1].low == 1500);
  CHECK(lines[0].rates[1].high == 1700);
  CHECK(lines[0].rates[1].repeats == 3);
  CHECK_THAT(efficiencies(lines[0].rates)[1].value, WithinRel(0.8, 1e-12));
  CHECK(efficiencies(lines[0].rates)[0].value == 1);
  CHECK_THAT(scaling_lines(all_of(results), Told::by_study, true)[0].rates[0].value, WithinRel(1e4, 1e-12));
}

TEST_CASE("rates of invalid and stopped runs are in no comparison, those of each other outcome apart",
          "[report][scaling]") {
  std::vector<NamedResult> const results{
      named("a", run_of(Outcome::valid, 1, 1000)),        named("b", run_of(Outcome::invalid, 2, 9999)),
      named("c", run_of(Outcome::stopped, 4, 9999)),      named("d", run_of(Outcome::emulated, 2, 500)),
      named("e", run_of(Outcome::unreferenced, 2, 1500)), named("f", run_of(Outcome::valid, 2, 1600))};
  auto const lines = lines_of(results);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].name == "small.toml, FOM");
  CHECK(lines[0].rates.size() == 2);
  CHECK(lines[0].rates[1].value == 1600);
  CHECK(lines[1].name == "small.toml, FOM_EMULATED");
  CHECK(lines[2].name == "small.toml, FOM_UNREFERENCED");
}

TEST_CASE("in a study runs with and without a golden curve lie on one line, those of emulated machines apart",
          "[report][scaling]") {
  auto const study_of = [](std::vector<Outcome> const& outcomes) {
    std::vector<NamedResult> results;
    std::int64_t ranks = 1;
    for (Outcome const outcome : outcomes) {
      results.push_back(named("a", run_of(outcome, ranks, 1000 * static_cast<double>(ranks))));
      ranks *= 2;
    }
    return lines_of(results, Told::by_study);
  };
  auto lines = study_of({Outcome::valid, Outcome::unreferenced, Outcome::unreferenced});
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].name == "small.toml, FOM and FOM_UNREFERENCED");
  REQUIRE(lines[0].rates.size() == 3); // of 1 rank on, as perf/study/collect has it
  CHECK(efficiencies(lines[0].rates)[2].value == 1);
  CHECK(study_of({Outcome::valid, Outcome::valid}).at(0).name == "small.toml, FOM");
  CHECK(study_of({Outcome::unreferenced, Outcome::unreferenced}).at(0).name == "small.toml, FOM_UNREFERENCED");
  lines = study_of({Outcome::valid, Outcome::invalid, Outcome::stopped, Outcome::emulated, Outcome::unreferenced});
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].rates.size() == 2);
  CHECK(lines[1].name == "small.toml, FOM_EMULATED");
}

TEST_CASE("results of other machines, builds or threads lie on other lines, and the legend says which",
          "[report][scaling]") {
  using Change = std::function<void(Result&)>;
  std::vector<std::pair<std::string, Change>> const changes{
      {"another processor", [](Result& run) { run.machine.cpu = "another processor"; }},
      {"1 rank per NVIDIA H100", [](Result& run) { run = on_devices(run, 1); }},
      {"Open MPI", [](Result& run) { run.machine.mpi = "Open MPI"; }},
      {"buffers staged", [](Result& run) { run.topology.buffers = "staged"; }},
      {"trainstone 0.2.0 1a2b3c4d dirty", [](Result& run) { run.code.version = "0.2.0"; }},
      {"trainstone 0.1.0 5e6f dirty", [](Result& run) { run.code.git = "5e6f"; }},
      {"trainstone 0.1.0 1a2b3c4d", [](Result& run) { run.code.dirty = false; }},
      {"Clang 21", [](Result& run) { run.code.compiler = "Clang 21"; }},
      {"Kokkos 4.5.1 OpenMP", [](Result& run) { run.code.kokkos = "4.5.1 OpenMP"; }},
      {"4 threads per rank", [](Result& run) { run.topology.threads_per_rank = 4; }},
      {"3 threads per rank", [](Result& run) { run.topology.threads_of_libraries = 3; }},
      {"emulated nodes", [](Result& run) { run.topology.emulated_nodes = true; }}};
  for (auto const& [words, change] : changes) {
    CAPTURE(words);
    Result other = run_of(Outcome::valid, 2, 1500);
    change(other);
    for (Told const told : {Told::by_values, Told::by_study}) {
      auto const lines = lines_of({named("a", run_of(Outcome::valid, 1, 1000)), named("b", other)}, told);
      REQUIRE(lines.size() == 2);
      CHECK((lines[0].name.ends_with(", " + words) || lines[1].name.ends_with(", " + words)));
      for (ScalingLine const& line : lines) CHECK(line.rates.size() == 1);
    }
    auto const alone = lines_of({named("b", other)});
    CHECK(alone.at(0).name == "small.toml, FOM"); // nothing to tell it from
  }
}

TEST_CASE("ranks that share a device lie on other lines than ranks with devices of their own, and other devices, too",
          "[report][scaling]") {
  auto const on = [](std::int64_t ranks, std::size_t per_device, char const* device = "NVIDIA H100") {
    Result run = on_devices(run_of(Outcome::valid, ranks, 1000), per_device);
    run.machine.device = device;
    return named("a", run);
  };
  for (Told const told : {Told::by_values, Told::by_study}) {
    auto lines = lines_of({on(1, 1), on(2, 1), on(4, 1), on(2, 2), on(4, 2)}, told);
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].name == "small.toml, FOM, 1 rank per NVIDIA H100");
    CHECK(lines[0].rates.size() == 3);
    CHECK(lines[1].name == "small.toml, FOM, 2 ranks per NVIDIA H100");
    CHECK(lines[1].rates.size() == 2);
    lines = lines_of({on(1, 1), on(2, 1), on(1, 1, "NVIDIA H200"), on(2, 1, "NVIDIA H200"), on(2, 1, "")}, told);
    REQUIRE(lines.size() == 3);
    CHECK(lines[1].name == "small.toml, FOM, 1 rank per NVIDIA H200");
    CHECK(lines[1].rates.size() == 2);
    CHECK(lines[2].name == "small.toml, FOM, 1 rank per unknown device");
  }
}

TEST_CASE("on the same ranks other cores, shared cores or another class make lines of their own, on others they do not",
          "[report][scaling]") {
  auto const run = [](std::int64_t ranks) {
    Result own = run_of(Outcome::valid, ranks, 1000);
    own.benchmark_class.name = "small";
    return own;
  };
  std::vector<NamedResult> const own{named("a", run(1)), named("b", run(2)), named("c", run(4))};
  using Change = std::function<void(Result&)>;
  for (auto const& [words, change] : std::vector<std::pair<std::string, Change>>{
           {"64 cores for a process", [](Result& other) { other.machine.cores = 64; }},
           {"2 threads on 1 core", [](Result& other) { other.topology.places[1].cores = "0"; }},
           {"class custom", [](Result& other) { other.benchmark_class.name = "custom"; }}})
    for (Told const told : {Told::by_values, Told::by_study}) {
      CAPTURE(words);
      std::vector<NamedResult> results = own;
      Result other = run(2);
      change(other);
      results.push_back(named("d", other));
      auto lines = lines_of(results, told);
      REQUIRE(lines.size() == 2);
      std::size_t const apart = lines[0].name.ends_with(words) ? 0 : 1;
      CHECK(lines[apart].name.ends_with(", " + words));
      CHECK(lines[apart].rates.size() == 1);
      CHECK(lines[1 - apart].rates.size() == 3);
      results = own;
      results[1] = named("b", other);
      lines = lines_of(results, told);
      REQUIRE(lines.size() == 1); // as in weak studies, and where cores run out
      CHECK(lines[0].name == "small.toml, FOM");
    }
}

TEST_CASE("emulated networks lie on lines of their own", "[report][scaling]") {
  std::vector<NamedResult> results;
  for (double const latency : {1e-3, 2e-3}) {
    Result run = run_of(Outcome::emulated, 2, 1000);
    run.topology.network = EmulatedNetwork::uniform({.latency = latency});
    results.push_back(named("a", run));
  }
  auto const lines = lines_of(results);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].name == "small.toml, FOM_EMULATED, network of 0.001 s and 0 s/byte");
}

TEST_CASE("results with other values of the deck lie on other lines, but not in a study that varies them",
          "[report][scaling]") {
  Result sharded = run_of(Outcome::valid, 2, 1200);
  sharded.parameters[0].value = std::int64_t{3};
  std::vector<NamedResult> const results{named("a", run_of(Outcome::valid, 2, 1000)), named("b", sharded),
                                         named("c", run_of(Outcome::valid, 4, 1900))};
  auto const lines = lines_of(results);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].name == "small.toml, FOM, parallel.zero_stage=1");
  CHECK(lines[0].rates.size() == 2);
  CHECK(lines[1].name == "small.toml, FOM, parallel.zero_stage=3");
  CHECK(lines_of({results[1], results[2]}, Told::by_study).size() == 1);
  CHECK(lines_of(results, Told::by_study).size() == 2); // on the same ranks: no repeats of one another
}

TEST_CASE("results on the same ranks with other nodes or another micro-batch lie on other lines", "[report][scaling]") {
  Result apart = run_of(Outcome::valid, 2, 1000);
  apart.topology.nodes = 2;
  auto lines = lines_of({named("a", run_of(Outcome::valid, 2, 1000)), named("b", apart)});
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].name == "small.toml, FOM, 1 node");
  std::vector<NamedResult> results;
  for (std::int64_t const micro : {1, 2, 2}) {
    Result run = run_of(Outcome::valid, 2, 1000);
    run.parameters.push_back({"batch.micro", "", micro, "deck:4"});
    results.push_back(named("a", run));
  }
  lines = lines_of(results);
  REQUIRE(lines.size() == 2);
  CHECK(lines[1].name == "small.toml, FOM, batch.micro=2");
  CHECK(lines[1].rates.at(0).repeats == 2);
  CHECK(lines_of({results[0]}).size() == 1);
}

TEST_CASE("another global batch on the same ranks is another line, of strong and of weak scaling",
          "[report][scaling]") {
  std::vector<NamedResult> strong, weak;
  for (std::int64_t const ranks : {1, 2, 4})
    for (std::int64_t const tokens : {32, 64}) {
      strong.push_back(named("a", run_with_tokens(ranks, tokens)));
      weak.push_back(named("a", run_with_tokens(ranks, ranks * tokens)));
    }
  for (Told const told : {Told::by_values, Told::by_study}) {
    auto lines = lines_of(strong, told);
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].name == "small.toml, FOM, 32 tokens per step");
    CHECK(lines[0].rates.size() == 3);
    CHECK(lines[0].rates[0].repeats == 1);
    CHECK(invariant_of(lines[1]).text == "strong scaling: 64 tokens per step on any number of ranks");
    lines = lines_of(weak, told);
    REQUIRE(lines.size() == 2);
    CHECK(lines[1].name == "small.toml, FOM, 64 tokens per step and rank");
    CHECK(lines[1].rates.size() == 3);
    CHECK(invariant_of(lines[0]).kind == StudyKind::weak_batch);
  }
}

TEST_CASE("what is held the same is counted, not believed", "[report][scaling]") {
  auto const invariant = [](Result const& one, Result const& four) {
    return invariant_of(lines_of({named("a", one), named("b", four)}, Told::by_study).at(0));
  };
  CHECK(invariant(run_with_tokens(1, 32), run_with_tokens(4, 32)).kind == StudyKind::strong);
  CHECK(invariant(run_with_tokens(1, 32), run_with_tokens(4, 128)).text == "weak scaling: 32 tokens per step and rank");
  CHECK(!invariant(run_with_tokens(1, 32), run_with_tokens(4, 96)).kind);
  Result both = run_with_tokens(4, 128);
  both.metrics["model_parameters"] = 4000;
  CHECK(invariant(run_with_tokens(1, 32), both).text ==
        "models of 1000 to 4000 parameters, 32 tokens per step and rank: this is no scaling study");
  CHECK(!invariant(run_with_tokens(1, 32), both).kind);
  Result uneven = run_with_tokens(4, 32);
  uneven.samples[0].tokens = 31;
  CHECK(!invariant(run_with_tokens(1, 32), uneven).kind);
}

TEST_CASE("a model grows with the ranks where parameters per rank are within the limit of one value",
          "[report][scaling]") {
  auto const invariant = [](double parameters, double limit) {
    Result grown = run_with_tokens(4, 32);
    grown.metrics["model_parameters"] = parameters;
    return invariant_of(lines_of({named("a", run_with_tokens(1, 32)), named("b", grown)}, Told::by_study).at(0), limit);
  };
  CHECK(invariant(4400, 0.1).kind == StudyKind::weak_model);
  CHECK(invariant(4400, 0.1).text == "weak scaling of the model: 32 tokens per step, 1000 to 1100 parameters per rank");
  for (auto const& [parameters, limit] : std::vector<std::pair<double, double>>{
           {4000, 0}, {4888, 0.1}, {3273, 0.1}, {5999, 0.2}, {2667, 0.2}}) // (1 + limit) / (1 - limit): 1.222, 1.5
    CHECK(invariant(parameters, limit).kind == StudyKind::weak_model);
  for (auto const& [parameters, limit] : std::vector<std::pair<double, double>>{
           {1001, 0.1}, {4001, 0}, {4889, 0.1}, {3272, 0.1}, {6001, 0.2}, {2666, 0.2}})
    CHECK(!invariant(parameters, limit).kind);
  CHECK(invariant(1001, 0.1).text ==
        "250.2 to 1000 parameters per rank, not within 10 % of one value: this is no scaling study");
  CHECK(invariant(1000, 0.1).kind == StudyKind::strong);
}

TEST_CASE("a model whose parameters a result does not say is not proved to grow", "[report][scaling]") {
  Result one = run_with_tokens(1, 32), four = run_with_tokens(4, 32);
  four.metrics["model_parameters"] = 4000;
  for (Result* without : {&one, &four}) {
    double const parameters = without->metrics.at("model_parameters");
    without->metrics.erase("model_parameters");
    Invariant const found = invariant_of(lines_of({named("a", one), named("b", four)}, Told::by_study).at(0));
    CHECK(!found.kind);
    CHECK(found.text == "a result does not say how many parameters its model has: this is no scaling study");
    without->metrics["model_parameters"] = parameters;
  }
}

TEST_CASE("a study's page says what was planned and what the results have", "[report][scaling]") {
  auto const page_of = [](StudyKind kind, std::int64_t tokens, Outcome outcome, double limit = 0.1) {
    ReportInput input;
    input.results = {named("n1", run_with_tokens(1, 32)), named("n4", run_with_tokens(4, tokens))};
    input.results[1].file.result.outcome = outcome;
    if (kind == StudyKind::weak_model) input.results[1].file.result.metrics["model_parameters"] = 5200;
    ReportedStudy study{
        "s",
        {.folder = "s", .kind = kind, .deck = "d", .invariant = "the plan", .limit = limit, .points = {}, .model = {}},
        {}};
    for (std::int64_t const ranks : {1, 4}) {
      std::string const name = "n" + std::to_string(ranks);
      study.study.points.push_back({.name = name,
                                    .ranks = ranks,
                                    .overrides = {},
                                    .predicted_seconds = {},
                                    .predicted_bytes = {},
                                    .result = {}});
      study.result_of_point[name] = ranks == 1 ? 0 : 1;
    }
    input.studies = {study};
    return page_markdown(study_section(input.studies[0], input));
  };
  std::string const as_planned = page_of(StudyKind::strong, 32, Outcome::valid);
  CHECK_THAT(as_planned, ContainsSubstring("To be held the same, says study.json: the plan\n"));
  CHECK_THAT(as_planned, ContainsSubstring("\n\nHeld the same in small.toml, FOM, by these results: strong scaling: 32 "
                                           "tokens per step on any number of ranks.\n"));
  CHECK_THAT(page_of(StudyKind::strong, 64, Outcome::valid),
             ContainsSubstring("this is no scaling study; this is no strong study.**\n"));
  CHECK_THAT(page_of(StudyKind::strong, 32, Outcome::invalid),
             ContainsSubstring("No line has results on several numbers of ranks to prove it by.") &&
                 !ContainsSubstring("by these results"));
  CHECK_THAT(page_of(StudyKind::weak_model, 32, Outcome::valid, 0.2),
             ContainsSubstring("\n\nHeld the same in small.toml, FOM, by these results: weak scaling of the model: 32 "
                               "tokens per step, 1000 to 1300 parameters per rank.\n"));
  CHECK_THAT(
      page_of(StudyKind::weak_model, 32, Outcome::valid),
      ContainsSubstring("not within 10 % of one value: this is no scaling study; this is no weak-model study.**"));
}
