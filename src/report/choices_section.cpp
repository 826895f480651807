#include "report/choices_section.hpp"

#include "report/plot.hpp"
#include "report/report_text.hpp"
#include "result/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace trainstone {

namespace {

/// The first point of every cell, in their order.
std::vector<StudyPoint const*> choices_of(Study const& study) {
  std::vector<StudyPoint const*> choices;
  for (StudyPoint const& point : study.points)
    if (std::ranges::none_of(choices, [&](StudyPoint const* other) { return other->cell == point.cell; }))
      choices.push_back(&point);
  return choices;
}

StudyPoint const& choice_at(std::vector<StudyPoint const*> const& choices, std::int64_t number) {
  return *choices.at(static_cast<std::size_t>(number - 1));
}

/// Steps per second of every repeat, by the median step. Of workers that do not wait for each other by the mean: they
/// make no step together, and a step of so many pushes is as short as it happens to be.
std::vector<double> speeds_of(std::vector<NamedResult const*> const& repeats) {
  std::vector<double> speeds;
  for (NamedResult const* repeat : repeats) {
    Result const& result = repeat->file.result;
    std::vector<double> const seconds = measured_seconds(result);
    speeds.push_back(1 / (result.servers ? mean(seconds) : median(seconds)));
  }
  return speeds;
}

/// "1.106 (1.027 to 1.195)": how many times as fast, with the range over pairs of repeats.
std::string relative_speed(std::vector<double> const& speeds, std::vector<double> const& first) {
  std::string text = fmt::format("{:.3f}", median(speeds) / median(first));
  if (speeds.size() < 2 || first.size() < 2) return text;
  auto const [least, largest] = std::ranges::minmax(speeds);
  auto const [least_of_first, largest_of_first] = std::ranges::minmax(first);
  return text + fmt::format(" ({:.3f} to {:.3f})", least / largest_of_first, largest / least_of_first);
}

Table choices_table(std::vector<StudyPoint const*> const& choices, ScalingLine const& line) {
  Table table{{"choice", "keys", "runs", "step, median", "rate, tokens/s", "speed, first = 1", "step, predicted"}, {}};
  std::vector<double> const first = speeds_of(line.by_cell.begin()->second);
  for (std::size_t i = 0; i < line.rates.size(); ++i) {
    ScalingValue const& rate = line.rates[i];
    StudyPoint const& point = choice_at(choices, rate.cell);
    std::string const speed = i == 0 ? "1.000" : relative_speed(speeds_of(line.by_cell.at(rate.cell)), first);
    table.rows.push_back({fmt::format("{}", rate.cell), point.choice, fmt::format("{}", rate.repeats),
                          seconds_text(line.seconds[i].value), fmt::format("{:.4g}", rate.value), speed,
                          point.predicted_seconds ? seconds_text(*point.predicted_seconds) : "none"});
  }
  return table;
}

/// A bar per choice. Each is a series of its own, so that the legend has the keys.
Figure choices_figure(std::string const& name, std::string const& title, std::vector<StudyPoint const*> const& choices,
                      ScalingLine const& line) {
  double largest = 0;
  for (ScalingValue const& rate : line.rates) largest = std::max(largest, rate.value);
  ShownUnit const unit = unit_of_amount(largest, "tokens/s");
  BarPlot plot{
      .title = title, .x = {.label = "choice"}, .y = {.label = fmt::format("rate ({})", unit.name)}, .series = {}};
  for (std::size_t i = 0; i < line.rates.size(); ++i) {
    std::string const number = fmt::format("{}", line.rates[i].cell);
    BarSeries series{number + ": " + choice_at(choices, line.rates[i].cell).choice,
                     std::vector<double>(line.rates.size(), 0)};
    series.values[i] = unit.factor * line.rates[i].value;
    plot.x.categories.push_back(number);
    plot.series.push_back(std::move(series));
  }
  return {name, plot_svg(plot), "Rates of the choices: medians of repeats, or single runs."};
}

} // namespace

CellNumber number_of_choice(ReportedStudy const& reported, ReportInput const& input) {
  std::map<NamedResult const*, std::int64_t> numbers;
  std::vector<StudyPoint const*> const choices = choices_of(reported.study);
  for (StudyPoint const& point : reported.study.points) {
    auto const is_its = [&](StudyPoint const* choice) { return choice->cell == point.cell; };
    if (auto const found = reported.result_of_point.find(point.name); found != reported.result_of_point.end())
      numbers[&input.results[found->second]] = std::ranges::find_if(choices, is_its) - choices.begin() + 1;
  }
  return [numbers](NamedResult const& named) { return numbers.at(&named); };
}

Page choices_section(std::string const& name, Study const& study, std::vector<ScalingLine> const& lines) {
  std::vector<StudyPoint const*> const choices = choices_of(study);
  Page page;
  if (lines.empty()) page.emplace_back(Line{"No result has a rate that may be compared.", Tone::notice});
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string const number = i == 0 ? "" : fmt::format("-{}", i + 1);
    page.emplace_back(Line{fmt::format("Choices of {}:", lines[i].name)});
    page.emplace_back(choices_table(choices, lines[i]));
    page.emplace_back(choices_figure(name + "-choices" + number, fmt::format("Rate by choice, {}{}", name, number),
                                     choices, lines[i]));
  }
  return page;
}

} // namespace trainstone
