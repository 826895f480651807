#include "report/step_section.hpp"

#include "core/plural.hpp"
#include "report/report_text.hpp"
#include "report/timeline_text.hpp"
#include "result/statistics.hpp"

#include <fmt/format.h>

#include <vector>

namespace trainstone {

namespace {

double seconds_of(Nanoseconds time) { return 1e-9 * static_cast<double>(time); }

/// Medians of the measured steps, as StepReport has them.
struct MedianStep {
  double step, computation, exposed;

  explicit MedianStep(std::vector<StepReport> const& steps) {
    std::vector<double> whole, rest, waiting;
    for (StepReport const& one : steps) {
      whole.push_back(one.seconds);
      waiting.push_back(one.exposed_communication_seconds);
      rest.push_back(whole.back() - waiting.back());
    }
    step = median(whole);
    computation = median(rest);
    exposed = median(waiting);
  }
};

std::vector<Cell> compared(char const* what, double predicted, double measured) {
  return {what, seconds_text(predicted), seconds_text(measured),
          measured > 0 ? fmt::format("{:.3f}", predicted / measured) : "none"};
}

Table times_table(StepTimeline const& timeline, MedianStep const& measured) {
  ClassTimeline const& busiest = timeline.busiest();
  return {{"time of a step", "predicted", "measured", "predicted / measured"},
          {compared("step", seconds_of(timeline.step), measured.step),
           compared("computation", seconds_of(busiest.compute), measured.computation),
           compared("communication that nothing hides, and waits for other ranks",
                    seconds_of(busiest.exposed() + busiest.others), measured.exposed)}};
}

void append_times(Page& page, NamedResult const& named, StepTimeline const& timeline) {
  std::vector<StepReport> const steps = measured_steps(named.file.result);
  page.emplace_back(Line{"Predicted from the parts in " + named.step.machine + "."});
  if (steps.empty()) {
    page.emplace_back(Line{"No step was measured.", Tone::notice});
    return;
  }
  page.emplace_back(times_table(timeline, MedianStep(steps)));
  page.emplace_back(
      Line{fmt::format("Predicted for the rank that computes most. Measured: medians of {}, of the slowest "
                       "rank in each.",
                       plural(std::ssize(steps), "step"))});
}

void append_timelines(Page& page, NamedResult const& named) {
  auto const& [stages, timeline] = *named.step.predicted;
  std::optional<MeasuredStep> const& measured = named.step.measured;
  std::string const title = fmt::format("{}: a step of {} on {}, {}", named.name, named.file.result.deck,
                                        plural(stages.front().layout.mesh.ranks(), "rank"),
                                        plural(stages.front().layout.topology.nodes(), "node"));
  std::string caption = "The predicted step";
  if (measured)
    caption += fmt::format("; to the same scale the first rank of each kind in the trace's step of median length, {}",
                           seconds_text(1e-3 * measured->milliseconds));
  page.emplace_back(Figure{named.name + "-timeline", timeline_svg(title, timeline, stages, measured), caption + "."});
  page.emplace_back(Listing{"The same as text", timeline_text(title, timeline, stages, measured)});
}

} // namespace

Page step_section(NamedResult const& named) {
  Page page{Heading{3, "Predicted and measured step"}};
  if (named.step.predicted) append_times(page, named, named.step.predicted->timeline);
  if (named.step.missing) page.emplace_back(*named.step.missing);
  if (named.step.predicted) append_timelines(page, named);
  return page;
}

} // namespace trainstone
