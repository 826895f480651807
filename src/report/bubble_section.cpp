#include "report/bubble_section.hpp"

#include "core/plural.hpp"
#include "report/report_text.hpp"

#include <fmt/format.h>

#include <array>

namespace trainstone {

namespace {

struct NamedPart {
  char const* name;
  double PipelineTimeParts::* seconds;
  char const* meaning;
};

constexpr std::array named_parts{
    NamedPart{"busy", &PipelineTimeParts::busy, "what the stages compute"},
    NamedPart{"unavoidable", &PipelineTimeParts::unavoidable, "idle in every order, with equal stages"},
    NamedPart{"imbalance", &PipelineTimeParts::imbalance,
              "by how much the bound of these stages exceeds that of equal stages"},
    NamedPart{"order", &PipelineTimeParts::order, "what the schedule takes longer than the bound"},
    NamedPart{"messages", &PipelineTimeParts::messages, "what messages add in the simulation"},
    NamedPart{"rest", &PipelineTimeParts::rest, "what is left of the measured time"}};

std::string formula_text(PipelineBubble const& bubble) {
  return bubble.formula_share ? fmt::format("{:.4f}", *bubble.formula_share) : "none";
}

/// "1f1b, 4 stages, 8 micro-batches", "interleaved, 4 stages of 2 chunks, 8 micro-batches"
std::string shape_text(PipelineInfo const& info) {
  std::string const chunks = info.shape.chunks > 1 ? fmt::format(" of {} chunks", info.shape.chunks) : "";
  return fmt::format("{}, {}{}, {} micro-batch{}", info.schedule, plural(info.shape.stages, "stage"), chunks,
                     info.shape.micro_batches, info.shape.micro_batches == 1 ? "" : "es");
}

} // namespace

std::string bubble_lines(PipelineInfo const& info) {
  PipelineBubble const& bubble = info.bubble;
  std::string text =
      fmt::format("pipeline {}: step {} (median of {})\n"
                  "  idle share {:.4f}, idle / busy {:.4f}; equal stages by the closed form {}, simulated {:.4f}\n",
                  shape_text(info), seconds_text(bubble.seconds), plural(info.steps, "step"), bubble.idle_share,
                  bubble.idle_ratio, formula_text(bubble), bubble.simulated_share);
  text += fmt::format("  {} x step {:.4f} s =", info.shape.stages, bubble.parts.time);
  char const* separator = " ";
  for (NamedPart const& part : named_parts) {
    text += fmt::format("{}{} {:.4f}", separator, part.name, bubble.parts.*part.seconds);
    separator = " + ";
  }
  return text + '\n';
}

Page bubble_section(PipelineInfo const& info) {
  PipelineBubble const& bubble = info.bubble;
  Page page{Heading{3, "Idle time of the pipeline"}};
  page.emplace_back(Line{fmt::format("{}: {} of {}, the one with the median idle share.", shape_text(info),
                                     seconds_text(bubble.seconds), plural(info.steps, "measured step"))});
  page.emplace_back(Table{{"idle time of all stages", "measured", "closed form, equal stages", "simulated"},
                          {{"share of all time", fmt::format("{:.4f}", bubble.idle_share), formula_text(bubble),
                            fmt::format("{:.4f}", bubble.simulated_share)}}});
  Table parts{{"part of stages x step", "time", "share", "meaning"}, {}};
  for (NamedPart const& part : named_parts) {
    double const seconds = bubble.parts.*part.seconds;
    parts.rows.push_back({part.name, fmt::format("{:.4f} s", seconds),
                          fmt::format("{:.1f} %", 100 * seconds / bubble.parts.time), part.meaning});
  }
  page.emplace_back(std::move(parts));
  Table stages{{"stage", "busy", "idle"}, {}};
  for (std::size_t stage = 0; stage < bubble.busy.size(); ++stage)
    stages.rows.push_back({fmt::format("{}", stage), fmt::format("{:.4f} s", bubble.busy[stage]),
                           fmt::format("{:.4f} s", bubble.seconds - bubble.busy[stage])});
  page.emplace_back(std::move(stages));
  return page;
}

} // namespace trainstone
