#include "report/held_out_section.hpp"

#include "report/plot.hpp"
#include "report/report_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

namespace trainstone {

namespace {

constexpr std::size_t most_curves = 12; // more cannot be told apart

struct Measured {
  std::int64_t tokens; ///< of training
  double seconds;      ///< of steps
  double loss;
};

/// What runs have in common whose held-out losses may be compared.
constexpr std::array<char const*, 9> of_problem{"model.preset",   "model.layers",  "model.heads",
                                                "model.channels", "model.context", "model.vocab",
                                                "data.source",    "data.files",    "data.sequence"};

std::vector<std::string> problem_of(NamedResult const& named) {
  std::vector<std::string> values;
  for (char const* const key : of_problem) {
    auto const found = named.file.deck_values.find(key);
    values.push_back(found == named.file.deck_values.end() ? "" : found->second);
  }
  return values;
}

struct Run {
  std::string name;
  std::vector<std::string> problem;
  std::vector<Measured> losses;

  Measured const* after(std::int64_t tokens) const {
    auto const found = std::ranges::find(losses, tokens, &Measured::tokens);
    return found == losses.end() ? nullptr : &*found;
  }
};

Run run_of(NamedResult const& named) {
  Run run{.name = named.name, .problem = problem_of(named), .losses = {}};
  std::int64_t tokens = 0;
  double seconds = 0;
  for (StepReport const& step : named.file.result.samples) {
    if (!step.skipped) tokens += step.tokens;
    seconds += step.seconds;
    if (step.validation_loss) run.losses.push_back({tokens, seconds, *step.validation_loss});
  }
  return run;
}

Series curve(Run const& run) {
  Series series{.name = run.name, .drawn = Drawn::line_and_points};
  for (Measured const& measured : run.losses) {
    series.x.push_back(measured.seconds);
    series.y.push_back(measured.loss);
  }
  return series;
}

/// After the most tokens after which all runs have a loss: what it is, and how long it took. Empty if there are none,
/// or if runs have other models or data.
Page same_samples(std::vector<Run> const& runs) {
  for (Run const& run : runs)
    if (run.problem != runs.front().problem) return {};
  auto const all_have = [&](Measured const& measured) {
    return std::ranges::all_of(runs, [&](Run const& run) { return run.after(measured.tokens) != nullptr; });
  };
  std::vector<Measured> const& first = runs.front().losses;
  auto const last = std::find_if(first.rbegin(), first.rend(), all_have);
  if (last == first.rend()) return {};
  double fastest = last->seconds;
  for (Run const& run : runs) fastest = std::min(fastest, run.after(last->tokens)->seconds);
  Table table{{"run", "held-out loss", "time", "of the fastest"}, {}};
  for (Run const& run : runs) {
    Measured const& there = *run.after(last->tokens);
    table.rows.push_back({run.name, fmt::format("{:.4f}", there.loss), seconds_text(there.seconds),
                          fmt::format("{:.2f} x", there.seconds / fastest)});
  }
  return {Line{fmt::format("After {} tokens of training, the last number after which all of these runs measured it:",
                           last->tokens)},
          std::move(table)};
}

} // namespace

Page held_out_section(std::vector<NamedResult> const& results) {
  std::vector<Run> runs;
  for (NamedResult const& named : results) {
    Outcome const outcome = named.file.result.outcome;
    if (outcome == Outcome::invalid || outcome == Outcome::stopped) continue;
    if (!named.file.result.losses_before.empty()) continue; // nobody knows when it began
    if (Run run = run_of(named); run.losses.size() >= 2) runs.push_back(std::move(run));
  }
  if (runs.size() < 2) return {};
  Plot plot{.title = "Held-out loss over time",
            .x = {.label = "time of steps (s)"},
            .y = {.label = "held-out loss (nats per token)"},
            .series = {}};
  for (std::size_t i = 0; i < std::min(runs.size(), most_curves); ++i) plot.series.push_back(curve(runs[i]));
  std::string caption = "Held-out loss of each run over the time of its steps, without the time of validations.";
  if (runs.size() > most_curves)
    caption += fmt::format(" The first {} of {} runs are shown.", most_curves, runs.size());
  Page page{Heading{2, "Held-out loss over time"}, Figure{"held-out-loss", plot_svg(plot), std::move(caption)}};
  std::ranges::move(same_samples(runs), std::back_inserter(page));
  return page;
}

} // namespace trainstone
