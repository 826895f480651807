// What a report says of the time, the samples and the work until a held-out loss, and how it draws held-out losses.

#include "report/held_out_section.hpp"
#include "report/report_text.hpp"
#include "report/stop_section.hpp"

#include "support/result_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace {

NamedResult reaching(std::string const& name, double seconds, double tokens, std::string const& loss = "4.0") {
  NamedResult named = test::named(name, run_of(Outcome::valid, 4, 100));
  named.file.result.metrics["seconds_to_stop_loss"] = seconds;
  named.file.result.metrics["tokens_to_stop_loss"] = tokens;
  named.file.result.metrics["steps_to_stop_loss"] = tokens / 100;
  named.file.result.metrics["flops_to_stop_loss"] = 1e6 * tokens;
  named.file.deck_values["data.stop_loss"] = loss;
  return named;
}

} // namespace

TEST_CASE("runs stand beside the fastest one of the same held-out loss", "[report]") {
  NamedResult const never = test::named("never", run_of(Outcome::valid, 4, 100));
  CHECK(stop_section({never}).empty());
  CHECK_FALSE(cost_text(never.file.result));
  CHECK(cost_text(reaching("a", 2, 800).file.result) == "2 s, 8 steps, 800 tokens, 8e+08 FLOP");
  std::string const page = page_markdown(
      stop_section({reaching("sync", 6, 800), never, reaching("async", 2, 1200), reaching("other", 9, 100, "5.0")}));
  CHECK_THAT(page, ContainsSubstring("| async | 4.0 | 2 s | 1.00 x | 12 | 1200 | 1.00 x | 1.2e+09 |\n"
                                     "| sync | 4.0 | 6 s | 3.00 x | 8 | 800 | 0.67 x | 8e+08 |\n"
                                     "| other | 5.0 | 9 s | 1.00 x | 1 | 100 | 1.00 x | 1e+08 |\n"));
  CHECK_THAT(page, !ContainsSubstring("never |"));
}

TEST_CASE("held-out losses of several runs are drawn over the time of their steps", "[report]") {
  auto const with_losses = [](std::string const& name, std::vector<double> const& losses) {
    NamedResult named = test::named(name, run_of(Outcome::valid, 4, 100));
    named.file.result.losses_before.clear();
    for (StepReport& step : named.file.result.samples) {
      step.validation_loss.reset();
      step.skipped = false;
    }
    for (std::size_t i = 0; i < losses.size(); ++i) named.file.result.samples.at(2 * i).validation_loss = losses[i];
    return named;
  };
  NamedResult const sync = with_losses("sync", {4.0, 3.5}), async = with_losses("async", {4.1, 3.25});
  NamedResult restarted = with_losses("restarted", {4.0, 3.0});
  restarted.file.result.losses_before = {5.0};
  CHECK(held_out_section({sync}).empty());
  CHECK(held_out_section({sync, with_losses("one", {4.0}), restarted}).empty());
  Page const section = held_out_section({sync, async, restarted});
  std::string const page = std::get<Figure>(section.at(1)).svg;
  for (std::string const words : {"Held-out loss over time", ">sync<", ">async<", "time of steps (s)"})
    CHECK_THAT(page, ContainsSubstring(words));
  CHECK_THAT(page, !ContainsSubstring("restarted"));
  CHECK_THAT(page_markdown(section), !ContainsSubstring("are shown"));
  NamedResult slower = with_losses("slower", {4.1, 3.3});
  for (StepReport& step : slower.file.result.samples) step.seconds *= 2;
  std::vector<StepReport> const& steps = sync.file.result.samples;
  auto const table_after = [&](std::size_t last) {
    std::int64_t tokens = 0;
    double seconds = 0;
    for (std::size_t i = 0; i <= last; ++i) {
      tokens += steps[i].tokens;
      seconds += steps[i].seconds;
    }
    return std::pair(fmt::format("After {} tokens", tokens),
                     fmt::format("| sync | {} | {} | 1.00 x |\n| slower | {} | {} | 2.00 x |\n",
                                 last == 0 ? "4.0000" : "3.5000", seconds_text(seconds),
                                 last == 0 ? "4.1000" : "3.3000", seconds_text(2 * seconds)));
  };
  auto const [tokens, rows] = table_after(2);
  std::string const both = page_markdown(held_out_section({sync, slower}));
  CHECK_THAT(both, ContainsSubstring(tokens) && ContainsSubstring(rows));
  NamedResult wider = slower;
  wider.file.deck_values["model.channels"] = "96";
  CHECK_THAT(page_markdown(held_out_section({sync, wider})), !ContainsSubstring("tokens of training"));
  slower.file.result.outcome = Outcome::stopped;
  CHECK(held_out_section({sync, slower}).empty());
  slower.file.result.outcome = Outcome::valid;
  std::swap(slower.file.result.samples.at(2).validation_loss, slower.file.result.samples.at(3).validation_loss);
  auto const [fewer, first_rows] = table_after(0);
  std::string const first = page_markdown(held_out_section({sync, slower}));
  CHECK_THAT(first, ContainsSubstring(fewer) && ContainsSubstring(first_rows));
  std::vector<NamedResult> many;
  for (int i = 0; i < 14; ++i) many.push_back(with_losses(fmt::format("run {}", i), {4.0, 3.0}));
  CHECK_THAT(page_markdown(held_out_section(many)), ContainsSubstring("The first 12 of 14 runs are shown."));
}
