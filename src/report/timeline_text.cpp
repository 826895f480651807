#include "report/timeline_text.hpp"

#include "core/plural.hpp"
#include "report/report_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

constexpr double ms_of(Nanoseconds time) { return 1e-6 * static_cast<double>(time); }

std::string duration(Nanoseconds time) { return seconds_text(1e-9 * static_cast<double>(time)); }

/// The collectives that a wait has waited for: of those that it may be, what was started last.
TimelineEntry const* waited_for(ClassTimeline const& one, TimelineEntry const& wait) {
  TimelineEntry const* found = nullptr;
  for (TimelineEntry const& entry : one.collectives) {
    Instruction const& start = entry.instruction;
    bool const is_it = start.act == wait.instruction.started && start.subject == wait.instruction.subject &&
                       start.micro_batch == wait.instruction.micro_batch && start.slot == wait.instruction.slot &&
                       start.piece == wait.instruction.piece;
    if (is_it && entry.end <= wait.end && (!found || entry.begin > found->begin)) found = &entry;
  }
  return found;
}

std::string measured_text(MeasuredClass const& measured, std::size_t entry) {
  MeasuredTime const& time = measured.entries[entry];
  return fmt::format(" {:>12.3f} {:>12.3f}", time.begin, time.milliseconds);
}

std::string line_of(ClassTimeline const& one, std::size_t number, ShardPlan const& plan,
                    MeasuredClass const* measured) {
  TimelineEntry const& entry = one.entries[number];
  std::string text = fmt::format("  {:>12.3f} {:>12.3f}{}  {}", ms_of(entry.begin), ms_of(entry.end - entry.begin),
                                 measured ? measured_text(*measured, number) : "", to_string(entry.instruction, plan));
  if (entry.instruction.act == Act::wait)
    if (TimelineEntry const* const work = waited_for(one, entry))
      text += fmt::format(", under way from {:.3f} to {:.3f}", ms_of(work->begin), ms_of(work->end));
  if (entry.times > 1) text += fmt::format("; stands for {} micro-batches", entry.times);
  return text + "\n";
}

std::string collectives_text(std::vector<MeasuredCollective> const& collectives) {
  std::string text = fmt::format("\ncollectives, measured\n  {:>12} {:>12}  what\n", "begin, ms", "takes, ms");
  for (auto const& [name, time] : collectives)
    text += fmt::format("  {:>12.3f} {:>12.3f}  {}\n", time.begin, time.milliseconds, name);
  return text;
}

std::string waits_text(ClassTimeline const& one) {
  return one.others > 0 ? fmt::format(", {} of waits for other ranks", duration(one.others)) : "";
}

} // namespace

std::string class_name(RankClass const& ranks, Rank stages) {
  std::string stage = stages > 1 ? fmt::format("stage {}: ", ranks.stage) : "";
  if (ranks.serves()) stage = "server: ";
  if (ranks.ranks == 1) return fmt::format("{}rank {}", stage, ranks.first);
  return fmt::format("{}rank {} and {} like it", stage, ranks.first, plural(ranks.ranks - 1, "rank"));
}

std::string timeline_summary(StepTimeline const& timeline) {
  ClassTimeline const& busiest = timeline.busiest();
  std::string text =
      fmt::format("predicted step {}: {} of computation, {} of communication that nothing hides{}\n",
                  duration(timeline.step), duration(busiest.compute), duration(busiest.exposed()), waits_text(busiest));
  for (std::size_t act = 0; act < act_count; ++act)
    if (busiest.act.at(act) > 0)
      text += fmt::format("  {:<16} {}\n", to_string(static_cast<Act>(act)), duration(busiest.act.at(act)));
  return text;
}

std::string timeline_text(std::string const& title, StepTimeline const& timeline, std::vector<ShardPlan> const& stages,
                          std::optional<MeasuredStep> const& measured) {
  std::string text = fmt::format("{}\n{}", title, timeline_summary(timeline));
  if (measured)
    text += fmt::format("measured step {}: the prediction is {:.3f} of it\n",
                        seconds_text(1e-3 * measured->milliseconds), ms_of(timeline.step) / measured->milliseconds);
  for (std::size_t number = 0; number < timeline.classes.size(); ++number) {
    ClassTimeline const& one = timeline.classes[number];
    ShardPlan const& plan = stages[static_cast<std::size_t>(one.ranks.stage)];
    MeasuredClass const* const beside = measured ? &measured->classes[number] : nullptr;
    text += fmt::format("\n{}: {} of computation, {} of communication\n  {:>12} {:>12}{}  what\n",
                        class_name(one.ranks, timeline.stages()), duration(one.compute), duration(one.exposed()),
                        "begin, ms", "takes, ms",
                        beside ? fmt::format(" {:>12} {:>12}", "measured from", "takes, ms") : "");
    for (std::size_t i = 0; i < one.entries.size(); ++i) text += line_of(one, i, plan, beside);
    if (beside) text += collectives_text(beside->collectives);
  }
  return text;
}

} // namespace trainstone
