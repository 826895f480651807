#include "report/result_plots.hpp"

#include "core/plural.hpp"
#include "report/plot.hpp"
#include "report/report_text.hpp"

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

constexpr std::size_t line_parts = 300;    // a line keeps the extremes of as many runs of steps
constexpr std::size_t most_step_bars = 60; // more steps share bars
constexpr std::size_t most_rank_bars = 48; // of more ranks the slowest are shown

Series curve(std::string name, std::vector<double> const& losses, Drawn drawn, int look) {
  Series series{.name = std::move(name), .drawn = drawn, .look = look};
  for (std::size_t i = 0; i < losses.size(); ++i) {
    series.x.push_back(static_cast<double>(i + 1));
    series.y.push_back(losses[i]);
  }
  return thinned(series, line_parts);
}

Figure loss_figure(NamedResult const& named) {
  Result const& result = named.file.result;
  std::vector<double> losses = result.losses_before;
  Series held_out{.name = "held-out", .drawn = Drawn::line_and_points, .look = 1};
  for (StepReport const& step : result.samples) {
    losses.push_back(step.loss);
    if (!step.validation_loss) continue;
    held_out.x.push_back(static_cast<double>(step.step));
    held_out.y.push_back(*step.validation_loss);
  }
  Plot plot{.title = "Loss per step, " + named.name,
            .x = {.label = "step"},
            .y = {.label = "loss (nats per token)"},
            .series = {curve("training", losses, Drawn::line, 0), held_out}};
  if (named.golden) plot.series.push_back(curve("golden curve", named.golden->losses, Drawn::dashes, reference_look));
  std::string caption = fmt::format("Training loss of {}", plural(static_cast<std::int64_t>(losses.size()), "step"));
  if (!held_out.x.empty()) caption += fmt::format(", held-out loss after {} of them", held_out.x.size());
  if (named.golden) caption += ", and the golden curve, recorded with " + named.golden->recorded_with;
  if (!result.losses_before.empty())
    caption += fmt::format("; the first {} are from before a restart",
                           plural(static_cast<std::int64_t>(result.losses_before.size()), "step"));
  return {named.name + "-loss", plot_svg(plot), caption + "."};
}

Series level(std::string name, double from, double to, double value, int look) {
  return {.name = std::move(name), .drawn = Drawn::dashes, .x = {from, to}, .y = {value, value}, .look = look};
}

/// Of all steps, of which there is one.
double longest_step(Result const& result) {
  return std::ranges::max_element(result.samples, {}, &StepReport::seconds)->seconds;
}

Figure step_figure(NamedResult const& named) {
  Result const& result = named.file.result;
  std::vector<double> const measured = measured_seconds(result);
  ShownUnit const unit = unit_of_seconds(longest_step(result));
  Series samples{.name = "step", .drawn = Drawn::points, .look = 0};
  for (StepReport const& step : result.samples) {
    samples.x.push_back(static_cast<double>(step.step));
    samples.y.push_back(unit.factor * step.seconds);
  }
  double const first = samples.x.front() - 0.5, last = samples.x.back() + 0.5;
  Plot plot{.title = "Time per step, " + named.name,
            .x = {.label = "step"},
            .y = {.label = fmt::format("time of the slowest rank ({})", unit.name), .from_zero = true},
            .series = {thinned(samples, line_parts)}};
  std::string caption = fmt::format("{} steps, no step was measured.", result.samples.size());
  if (!measured.empty()) {
    Summary const summary = summarize(measured);
    auto const from = static_cast<double>(result.window.first) - 0.5,
               to = static_cast<double>(result.window.last) + 0.5;
    if (first < from) plot.bands.push_back({"warm-up, not measured", first, from});
    if (to < last) plot.bands.push_back({"not measured", to, last});
    plot.series.push_back(level("median " + seconds_text(summary.median), from, to, unit.factor * summary.median, 1));
    if (auto const floor = result.metrics.find("floor_seconds"); floor != result.metrics.end())
      plot.series.push_back(
          level("floor " + seconds_text(floor->second), from, to, unit.factor * floor->second, reference_look));
    caption =
        fmt::format("Measured: steps {} to {}, median {}, 5 to 95 % {} to {}, {} to {} in all.", result.window.first,
                    result.window.last, seconds_text(summary.median), seconds_text(summary.p05),
                    seconds_text(summary.p95), seconds_text(summary.minimum), seconds_text(summary.maximum));
    if (result.metrics.contains("floor_seconds")) caption += " Floor: the least time on the peaks of the same run.";
  }
  if (samples.x.size() > plot.series[0].x.size())
    caption += " Of runs of neighbouring steps the first, least, largest and last one are drawn.";
  return {named.name + "-steps", plot_svg(plot), caption};
}

Figure phase_figure(NamedResult const& named) {
  std::vector<StepReport> const& samples = named.file.result.samples;
  std::size_t const bars = std::min(samples.size(), most_step_bars);
  ShownUnit const unit = unit_of_seconds(longest_step(named.file.result));
  BarPlot plot{.title = "Kernels of rank 0 by phase, " + named.name,
               .x = {.label = bars < samples.size() ? "first step of a bar" : "step"},
               .y = {.label = fmt::format("time ({})", unit.name)},
               .series = {}};
  for (Phase const phase : phases) plot.series.push_back({std::string(to_string(phase)), {}});
  for (std::size_t bar = 0; bar < bars; ++bar) {
    std::size_t const begin = bar * samples.size() / bars, end = (bar + 1) * samples.size() / bars;
    plot.x.categories.push_back(fmt::format("{}", samples[begin].step));
    for (std::size_t place = 0; place < phases.size(); ++place) {
      double sum = 0;
      for (std::size_t i = begin; i < end; ++i) sum += samples[i].phase_seconds[phases[place]];
      plot.series[place].values.push_back(unit.factor * sum / static_cast<double>(end - begin));
    }
  }
  return {
      named.name + "-phases", plot_svg(plot),
      fmt::format("Time of rank 0 in kernels and communication{}. What overlaps counts twice; what is in no kernel is "
                  "left out.",
                  bars < samples.size() ? ", means of the steps of a bar" : "")};
}

Figure rank_figure(NamedResult const& named) {
  Result const& result = named.file.result;
  std::vector<RankInfo> ranks = result.ranks;
  bool const all = ranks.size() <= most_rank_bars;
  if (!all) {
    std::ranges::sort(ranks, std::greater(), &RankInfo::median_own_seconds);
    ranks.resize(most_rank_bars);
  }
  auto const steps = static_cast<double>(measured_steps(result).size());
  double largest = 0;
  for (RankInfo const& rank : ranks) largest = std::max(largest, rank.median_step_seconds);
  ShownUnit const unit = unit_of_seconds(largest);
  BarPlot plot{.title = "Time per step by rank, " + named.name,
               .x = {.label = "rank"},
               .y = {.label = fmt::format("time ({})", unit.name)},
               .series = {{"without communication (median)", {}, 0}, {"communication (mean)", {}, 3}}};
  for (RankInfo const& rank : ranks) {
    plot.x.categories.push_back(fmt::format("{}{}", rank.rank, rank.serves ? " (server)" : ""));
    plot.series[0].values.push_back(unit.factor * rank.median_own_seconds);
    plot.series[1].values.push_back(unit.factor * rank.communication_seconds / steps);
  }
  std::string caption = result.servers ? "Measured pushes of workers, and steps of servers, which wait for pushes."
                                       : "Measured steps. Faster ranks wait for slower ones in communication.";
  if (!all) caption += fmt::format(" The {} slowest of {} ranks.", ranks.size(), result.ranks.size());
  return {named.name + "-ranks", plot_svg(plot), caption};
}

Figure memory_figure(NamedResult const& named) {
  Result const& result = named.file.result;
  auto const most =
      static_cast<double>(std::max(total(result.predicted.memory_bytes), total(result.counted.memory_bytes)));
  ShownUnit const unit = unit_of_bytes(most);
  BarPlot plot{.title = "Memory of a rank, " + named.name,
               .x = {.label = "category"},
               .y = {.label = fmt::format("memory ({})", unit.name)},
               .series = {{"predicted", {}, 0}, {"counted", {}, 4}},
               .stacked = false};
  for (auto const& [name, bytes] : result.predicted.memory_bytes) {
    plot.x.categories.push_back(name);
    plot.series[0].values.push_back(unit.factor * static_cast<double>(bytes));
    plot.series[1].values.push_back(unit.factor * static_cast<double>(amount_of(result.counted.memory_bytes, name)));
  }
  return {named.name + "-memory", plot_svg(plot), "Predicted before the run beside what was counted during it."};
}

} // namespace

std::vector<Figure> result_figures(NamedResult const& named) {
  Result const& result = named.file.result;
  std::vector<Figure> figures;
  if (!result.samples.empty() || !result.losses_before.empty()) figures.push_back(loss_figure(named));
  if (!result.samples.empty()) figures.push_back(step_figure(named));
  bool const phases_timed = std::ranges::all_of(result.samples, &StepReport::phases_are_timed);
  if (!result.samples.empty() && phases_timed) figures.push_back(phase_figure(named));
  bool const ranks_timed = std::ranges::all_of(result.ranks, [](RankInfo const& rank) {
    return std::isfinite(rank.median_own_seconds) && std::isfinite(rank.median_step_seconds);
  });
  if (!measured_steps(result).empty() && !result.ranks.empty() && ranks_timed) figures.push_back(rank_figure(named));
  figures.push_back(memory_figure(named));
  return figures;
}

} // namespace trainstone
