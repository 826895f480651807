#include "report/scaling_plots.hpp"

#include "report/plot.hpp"
#include "report/report_text.hpp"

#include <algorithm>
#include <set>

namespace trainstone {

namespace {

/// Beginnings of file names, ends of titles.
struct Named {
  std::string file, title;
};

constexpr char const* bars_meaning = "Points are medians of repeats with their range, or single runs with their";

PlotAxis rank_axis(std::set<std::int64_t> const& ranks) {
  PlotAxis axis{.label = "ranks", .scale = Scale::log, .base = 2};
  for (std::int64_t const each : ranks) axis.ticks.push_back(static_cast<double>(each));
  return axis;
}

std::set<std::int64_t> ranks_of(std::vector<ScalingLine> const& lines) {
  std::set<std::int64_t> ranks;
  for (ScalingLine const& line : lines)
    for (ScalingValue const& value : line.rates) ranks.insert(value.cell);
  return ranks;
}

Series measured(std::string name, std::vector<ScalingValue> const& values, double factor, int look) {
  Series series{.name = std::move(name), .drawn = Drawn::line_and_points, .look = look};
  for (ScalingValue const& value : values) {
    series.x.push_back(static_cast<double>(value.cell));
    series.y.push_back(factor * value.value);
    series.low.push_back(factor * value.low);
    series.high.push_back(factor * value.high);
  }
  return series;
}

/// Whether there is anything to compare with: one number of ranks has no ideal.
bool scales(ScalingLine const& line) { return line.rates.size() > 1; }

Figure rate_figure(Named const& name, std::vector<ScalingLine> const& lines, bool flops) {
  double largest = 0;
  for (ScalingLine const& line : lines)
    for (ScalingValue const& value : line.rates) largest = std::max(largest, value.value);
  ShownUnit const unit = unit_of_amount(largest, flops ? "FLOP/s" : "tokens/s");
  Plot plot{
      .title = "Rate by ranks" + name.title,
      .x = rank_axis(ranks_of(lines)),
      .y = {.label = fmt::format("{} ({})", flops ? "executed FLOP rate" : "rate", unit.name), .scale = Scale::log},
      .series = {}};
  for (std::size_t i = 0; i < lines.size(); ++i)
    plot.series.push_back(measured(lines[i].name, lines[i].rates, unit.factor, static_cast<int>(i)));
  for (ScalingLine const& line : lines) {
    if (!scales(line)) continue;
    ScalingValue const &first = line.rates.front(), &last = line.rates.back();
    auto const from = static_cast<double>(first.cell), to = static_cast<double>(last.cell);
    double const value = unit.factor * first.value;
    plot.series.push_back({.name = lines.size() == 1 ? "ideal" : "ideal, " + line.name,
                           .drawn = Drawn::dashes,
                           .x = {from, to},
                           .y = {value, value * to / from},
                           .look = reference_look});
  }
  return {name.file + "-rates", plot_svg(plot),
          fmt::format("{} 95 % interval. Ideal: proportional to the ranks, from the fewest on.", bars_meaning)};
}

Figure efficiency_figure(Named const& name, std::vector<ScalingLine> const& lines) {
  Plot plot{.title = "Efficiency by ranks" + name.title,
            .x = rank_axis(ranks_of(lines)),
            .y = {.label = "rate per rank / that at the fewest ranks", .from_zero = true},
            .series = {}};
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (scales(lines[i]))
      plot.series.push_back(measured(lines[i].name, efficiencies(lines[i].rates), 1, static_cast<int>(i)));
  std::set<std::int64_t> const ranks = ranks_of(lines);
  plot.series.push_back({.name = "ideal",
                         .drawn = Drawn::dashes,
                         .x = {static_cast<double>(*ranks.begin()), static_cast<double>(*ranks.rbegin())},
                         .y = {1, 1},
                         .look = reference_look});
  return {name.file + "-efficiency", plot_svg(plot), fmt::format("{} 95 % interval.", bars_meaning)};
}

Figure time_figure(Named const& name, std::vector<ScalingLine> const& lines,
                   std::vector<ExpectedTimes> const& expected) {
  std::set<std::int64_t> ranks = ranks_of(lines);
  double largest = 0;
  for (ScalingLine const& line : lines)
    for (ScalingValue const& value : line.seconds) largest = std::max(largest, value.high);
  for (ExpectedTimes const& times : expected)
    for (auto const& [each, seconds] : times.seconds) {
      ranks.insert(each);
      largest = std::max(largest, seconds);
    }
  ShownUnit const unit = unit_of_seconds(largest);
  Plot plot{.title = "Time per step by ranks" + name.title,
            .x = rank_axis(ranks),
            .y = {.label = fmt::format("time of a step ({})", unit.name), .from_zero = true},
            .series = {}};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string const measured_name = lines.size() == 1 ? "measured" : "measured, " + lines[i].name;
    plot.series.push_back(measured(measured_name, lines[i].seconds, unit.factor, static_cast<int>(i)));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    Series series{
        .name = expected[i].name, .drawn = Drawn::line_and_points, .look = static_cast<int>(lines.size() + i)};
    for (auto const& [each, seconds] : expected[i].seconds) {
      series.x.push_back(static_cast<double>(each));
      series.y.push_back(unit.factor * seconds);
    }
    plot.series.push_back(std::move(series));
  }
  return {name.file + "-times", plot_svg(plot), fmt::format("{} 5 and 95 %.", bars_meaning)};
}

/// Mean over the measured steps of all repeats.
double phase_mean(std::vector<NamedResult const*> const& repeats, Phase phase) {
  double sum = 0;
  std::size_t steps = 0;
  for (NamedResult const* repeat : repeats)
    for (StepReport const& step : measured_steps(repeat->file.result)) {
      sum += step.phase_seconds[phase];
      ++steps;
    }
  return sum / static_cast<double>(steps);
}

bool phases_are_timed(ScalingLine const& line) {
  for (auto const& [ranks, repeats] : line.by_cell)
    for (NamedResult const* repeat : repeats)
      if (!std::ranges::all_of(repeat->file.result.samples, &StepReport::phases_are_timed)) return false;
  return true;
}

Figure phase_figure(Named const& name, std::vector<ScalingLine> const& lines) {
  BarPlot plot{.title = "Phases of a step by ranks" + name.title, .x = {.label = "ranks"}, .y = {}, .series = {}};
  for (Phase const phase : phases) plot.series.push_back({std::string(to_string(phase)), {}});
  double largest = 0;
  for (ScalingLine const& line : lines) {
    if (!phases_are_timed(line)) continue;
    for (auto const& [ranks, repeats] : line.by_cell) {
      plot.x.categories.push_back(lines.size() == 1 ? fmt::format("{}", ranks)
                                                    : fmt::format("{} ({})", ranks, line.name));
      double sum = 0;
      for (std::size_t place = 0; place < phases.size(); ++place) {
        plot.series[place].values.push_back(phase_mean(repeats, phases[place]));
        sum += plot.series[place].values.back();
      }
      largest = std::max(largest, sum);
    }
  }
  ShownUnit const unit = unit_of_seconds(largest);
  plot.y.label = fmt::format("time of rank 0 ({})", unit.name);
  for (BarSeries& series : plot.series)
    for (double& value : series.values) value *= unit.factor;
  return {name.file + "-parts", plot_svg(plot),
          "Time of rank 0 in kernels and communication: means of the measured steps."};
}

} // namespace

std::vector<Figure> scaling_figures(std::string const& study, std::vector<ScalingLine> const& lines, bool flops,
                                    std::vector<ExpectedTimes> const& expected) {
  if (lines.empty()) return {};
  Named const name = study.empty() ? Named{"scaling", ""} : Named{study, ", " + study};
  std::vector<Figure> figures{rate_figure(name, lines, flops)};
  if (std::ranges::any_of(lines, scales)) figures.push_back(efficiency_figure(name, lines));
  figures.push_back(time_figure(name, lines, expected));
  if (std::ranges::any_of(lines, phases_are_timed)) figures.push_back(phase_figure(name, lines));
  return figures;
}

} // namespace trainstone
