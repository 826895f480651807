#include "report/sweep_section.hpp"

#include "core/plural.hpp"
#include "report/output.hpp"
#include "report/plot.hpp"
#include "report/report_text.hpp"

#include <algorithm>
#include <set>

namespace trainstone {

namespace {

std::string_view scaling_of(SweepFile const& file) { return file.strong ? "strong scaling" : "weak scaling"; }

PlotAxis rank_axis(std::set<std::int64_t> const& ranks) {
  PlotAxis axis{.label = "ranks", .scale = Scale::log, .base = 2};
  for (std::int64_t const each : ranks) axis.ticks.push_back(static_cast<double>(each));
  return axis;
}

template <class Value>
Series series_of(NamedSweep const& named, std::string name, Value const& value) {
  Series series{.name = std::move(name), .drawn = Drawn::line_and_points};
  for (SweepFileRow const& row : named.file.rows) {
    series.x.push_back(static_cast<double>(row.ranks));
    series.y.push_back(value(row));
  }
  return series;
}

/// Both axes in powers: the ideal of either scaling is a straight line.
Figure step_figure(NamedSweep const& named) {
  std::vector<SweepFileRow> const& rows = named.file.rows;
  double const first = rows.front().seconds;
  ShownUnit const unit = unit_of_seconds(std::ranges::max(rows, {}, &SweepFileRow::seconds).seconds);
  std::set<std::int64_t> ranks;
  for (SweepFileRow const& row : rows) ranks.insert(row.ranks);
  auto const ideal = [&](SweepFileRow const& row) {
    double const less =
        named.file.strong ? static_cast<double>(rows.front().ranks) / static_cast<double>(row.ranks) : 1;
    return unit.factor * first * less;
  };
  Plot plot{.title = fmt::format("Predicted step by ranks, {}: {}", scaling_of(named.file), named.name),
            .x = rank_axis(ranks),
            .y = {.label = fmt::format("time of a step ({})", unit.name), .scale = Scale::log},
            .series = {}};
  plot.series.push_back(
      series_of(named, "predicted", [&](SweepFileRow const& row) { return unit.factor * row.seconds; }));
  plot.series.push_back(series_of(named, "ideal", ideal));
  plot.series.back().drawn = Drawn::dashes;
  plot.series.back().look = reference_look;
  return {named.name + "-steps", plot_svg(plot),
          named.file.strong ? "Ideal: as many times shorter as there are more ranks."
                            : "Ideal: as long as at the fewest ranks."};
}

Figure efficiency_figure(std::vector<NamedSweep> const& sweeps) {
  std::set<std::int64_t> ranks;
  for (NamedSweep const& named : sweeps)
    for (SweepFileRow const& row : named.file.rows) ranks.insert(row.ranks);
  Plot plot{.title = "Predicted efficiency by ranks",
            .x = rank_axis(ranks),
            .y = {.label = "rate per rank / that at the fewest ranks", .from_zero = true},
            .series = {}};
  for (NamedSweep const& named : sweeps)
    plot.series.push_back(series_of(named, fmt::format("{}, {}", named.name, named.file.strong ? "strong" : "weak"),
                                    [](SweepFileRow const& row) { return row.efficiency; }));
  return {"sweeps-efficiency", plot_svg(plot), "Predicted, not measured."};
}

Table sweep_table(SweepFile const& file) {
  Table table{{"ranks", "nodes", "tensor x data x pipeline", "samples per step", "memory per rank", "sent per rank",
               "predicted step", "efficiency"},
              {}};
  for (SweepFileRow const& row : file.rows)
    table.rows.push_back({fmt::format("{}", row.ranks), fmt::format("{}", row.nodes),
                          fmt::format("{} x {} x {}", row.tensor, row.data, row.pipeline),
                          fmt::format("{}", row.samples), mebibytes(row.needed), mebibytes(row.sent),
                          seconds_text(row.seconds), fmt::format("{:.3f}", row.efficiency)});
  return table;
}

} // namespace

Page sweep_section(std::vector<NamedSweep> const& sweeps) {
  if (sweeps.empty()) return {};
  Page page{Heading{2, "Predicted scaling"}};
  for (NamedSweep const& named : sweeps) {
    SweepFile const& file = named.file;
    page.emplace_back(Heading{3, fmt::format("{}: {}", named.name, scaling_of(file))});
    page.emplace_back(
        Line{fmt::format("Deck {}, predicted and not measured; {}. {}", file.deck,
                         file.strong ? "the batch of all ranks stays" : "the batch of a rank stays", file.machine)});
    page.emplace_back(step_figure(named));
    page.emplace_back(sweep_table(file));
  }
  page.emplace_back(efficiency_figure(sweeps));
  return page;
}

} // namespace trainstone
