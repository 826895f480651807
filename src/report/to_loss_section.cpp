#include "report/to_loss_section.hpp"

#include "report/plot.hpp"
#include "report/report_text.hpp"
#include "result/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace trainstone {

namespace {

std::optional<double> metric(Result const& result, std::string const& name) {
  auto const found = result.metrics.find(name);
  return found == result.metrics.end() ? std::nullopt : std::optional(found->second);
}

/// Repeats of one choice.
struct Choice {
  std::string keys;
  std::vector<Result const*> runs;    ///< whose checks passed
  std::vector<Result const*> reached; ///< of these, those that reached the loss

  double median_of(std::string const& what) const {
    std::vector<double> values;
    for (Result const* run : reached) values.push_back(metric(*run, what + "_to_stop_loss").value_or(0));
    return median(values);
  }
  double parameters() const { return metric(*runs.front(), "model_parameters").value_or(0); }
};

/// In the order of the study; without choices that have no run.
std::vector<Choice> choices_of(ReportedStudy const& reported, ReportInput const& input) {
  std::vector<Choice> choices;
  for (StudyPoint const& point : reported.study.points) {
    auto const found = reported.result_of_point.find(point.name);
    if (found == reported.result_of_point.end()) continue;
    Result const& result = input.results[found->second].file.result;
    if (result.outcome == Outcome::invalid || result.outcome == Outcome::stopped) continue;
    auto choice = std::ranges::find(choices, point.choice, &Choice::keys);
    if (choice == choices.end()) choice = choices.insert(choices.end(), {point.choice, {}, {}});
    choice->runs.push_back(&result);
    if (metric(result, "flops_to_stop_loss")) choice->reached.push_back(&result);
  }
  return choices;
}

Table costs_table(std::vector<Choice> const& choices) {
  Table table{{"choice", "parameters", "runs", "reached", "steps", "tokens", "time", "FLOP", "of the least"}, {}};
  std::optional<double> least;
  for (Choice const& choice : choices)
    if (!choice.reached.empty()) least = std::min(least.value_or(choice.median_of("flops")), choice.median_of("flops"));
  for (Choice const& choice : choices) {
    std::vector<Cell> row{choice.keys, fmt::format("{:.0f}", choice.parameters()),
                          fmt::format("{}", choice.runs.size()), fmt::format("{}", choice.reached.size())};
    if (choice.reached.empty()) {
      row.insert(row.end(), 5, Cell("never", Tone::notice));
    } else {
      double const flops = choice.median_of("flops");
      for (Cell const& cell :
           {Cell(fmt::format("{:.0f}", choice.median_of("steps"))),
            Cell(fmt::format("{:.0f}", choice.median_of("tokens"))), Cell(seconds_text(choice.median_of("seconds"))),
            Cell(fmt::format("{:.4g}", flops)), Cell(fmt::format("{:.2f} x", flops / *least))})
        row.push_back(cell);
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Figure costs_figure(std::string const& name, std::vector<Choice> const& choices) {
  Series series{.name = "FLOP to the loss", .drawn = Drawn::points};
  for (Choice const& choice : choices) {
    if (choice.reached.empty() || choice.parameters() <= 0) continue;
    std::vector<double> values;
    for (Result const* run : choice.reached) values.push_back(*metric(*run, "flops_to_stop_loss"));
    series.x.push_back(choice.parameters());
    series.y.push_back(median(values));
    series.low.push_back(std::ranges::min(values));
    series.high.push_back(std::ranges::max(values));
  }
  Plot const plot{.title = "Operations to the held-out loss, " + name,
                  .x = {.label = "parameters", .scale = Scale::log},
                  .y = {.label = "FLOP", .scale = Scale::log},
                  .series = {series}};
  return {name + "-flops-to-loss", plot_svg(plot),
          "Operations of all ranks until the held-out loss was low enough: medians over repeats, with their range."};
}

/// Of a step, by all ranks.
double flops_of_step(Result const& result) {
  std::vector<double> const seconds = measured_seconds(result);
  double const rate = metric(result, "executed_flops_per_second").value_or(0);
  return seconds.empty() ? 0 : rate * mean(seconds);
}

Figure curves_figure(std::string const& name, std::vector<Choice> const& choices) {
  Plot plot{.title = "Held-out loss over operations, " + name,
            .x = {.label = "FLOP"},
            .y = {.label = "held-out loss (nats per token)"},
            .series = {}};
  for (Choice const& choice : choices) {
    Result const& run = *choice.runs.front();
    Series series{.name = choice.keys, .drawn = Drawn::line_and_points};
    double flops = 0;
    for (StepReport const& step : run.samples) {
      flops += flops_of_step(run);
      if (!step.validation_loss) continue;
      series.x.push_back(flops);
      series.y.push_back(*step.validation_loss);
    }
    plot.series.push_back(std::move(series));
  }
  return {name + "-loss-over-flops", plot_svg(plot), "Held-out loss of the first run of each choice."};
}

} // namespace

Page to_loss_section(std::string const& name, ReportedStudy const& reported, ReportInput const& input) {
  std::vector<Choice> const choices = choices_of(reported, input);
  if (choices.empty()) return {Line{"No result has a rate that may be compared.", Tone::notice}};
  return {costs_table(choices), costs_figure(name, choices), curves_figure(name, choices)};
}

} // namespace trainstone
