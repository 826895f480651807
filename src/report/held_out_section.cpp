#include "report/held_out_section.hpp"

#include "report/plot.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

namespace trainstone {

namespace {

constexpr std::size_t most_curves = 12; // more cannot be told apart

/// Over the time of the steps of this run.
Series held_out_losses(NamedResult const& named) {
  Series series{.name = named.name, .drawn = Drawn::line_and_points};
  double seconds = 0;
  for (StepReport const& step : named.file.result.samples) {
    seconds += step.seconds;
    if (!step.validation_loss) continue;
    series.x.push_back(seconds);
    series.y.push_back(*step.validation_loss);
  }
  return series;
}

} // namespace

Page held_out_section(std::vector<NamedResult> const& results) {
  Plot plot{.title = "Held-out loss over time",
            .x = {.label = "time of steps (s)"},
            .y = {.label = "held-out loss (nats per token)"},
            .series = {}};
  std::size_t found = 0;
  for (NamedResult const& named : results) {
    if (!named.file.result.losses_before.empty()) continue; // nobody knows when it began
    Series series = held_out_losses(named);
    if (series.x.size() < 2) continue;
    ++found;
    if (plot.series.size() < most_curves) plot.series.push_back(std::move(series));
  }
  if (found < 2) return {};
  std::string caption = "Held-out loss of each run over the time of its steps, without the time of validations.";
  if (found > plot.series.size())
    caption += fmt::format(" The first {} of {} runs are shown.", plot.series.size(), found);
  return {Heading{2, "Held-out loss over time"}, Figure{"held-out-loss", plot_svg(plot), std::move(caption)}};
}

} // namespace trainstone
