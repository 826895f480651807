#include "report/scaling_section.hpp"

#include "core/plural.hpp"
#include "report/choices_section.hpp"
#include "report/output.hpp"
#include "report/report_text.hpp"
#include "report/scaling_plots.hpp"
#include "report/to_loss_section.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace trainstone {

namespace {

std::string median_step(Result const& result) {
  std::vector<double> const seconds = measured_seconds(result);
  return seconds.empty() ? "none" : seconds_text(median(seconds));
}

std::vector<Cell> status_cells(Result const& result) {
  Tone const tone = tone_of(result.outcome);
  std::string interval;
  if (result.tokens_per_second)
    interval = fmt::format("{:.2e} to {:.2e}", result.tokens_per_second->low, result.tokens_per_second->high);
  return {Cell(to_string(result.outcome), tone), Cell(rate_text(result), tone), interval, median_step(result)};
}

void append(std::vector<Cell>& row, std::vector<Cell> const& more) { row.insert(row.end(), more.begin(), more.end()); }

std::string left_out(std::vector<NamedResult const*> const& results) {
  std::string names;
  for (NamedResult const* named : results) {
    Outcome const outcome = named->file.result.outcome;
    if (outcome != Outcome::invalid && outcome != Outcome::stopped) continue;
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", named->name, to_string(outcome));
  }
  return names;
}

void append_figures(Page& page, std::vector<Figure> figures) {
  if (figures.empty()) page.emplace_back(Line{"No result has a rate that may be compared.", Tone::notice});
  for (Figure& figure : figures) page.emplace_back(std::move(figure));
}

std::vector<ExpectedTimes> floors_of(std::vector<ScalingLine> const& lines) {
  std::vector<ExpectedTimes> all;
  for (ScalingLine const& line : lines) {
    ExpectedTimes floors{lines.size() == 1 ? "floor of the measured peaks" : "floor, " + line.name, {}};
    for (auto const& [ranks, repeats] : line.by_cell) {
      auto const& metrics = repeats.front()->file.result.metrics;
      if (auto const floor = metrics.find("floor_seconds"); floor != metrics.end())
        floors.seconds.emplace_back(ranks, floor->second);
    }
    if (!floors.seconds.empty()) all.push_back(std::move(floors));
  }
  return all;
}

// --- studies

/// With a column of choices if there are some.
Table points_table(ReportedStudy const& reported, ReportInput const& input) {
  bool const chooses = has_choices(reported.study.kind);
  Table table{{"point", "ranks", "nodes", "repeat", "overrides", "status", "rate", "ci95, tokens/s", "step, median",
               "step, predicted", "memory of a rank, predicted"},
              {}};
  if (chooses) table.columns.insert(table.columns.begin() + 1, "choice");
  for (StudyPoint const& point : reported.study.points) {
    std::vector<Cell> row{point.name, fmt::format("{}", point.ranks), fmt::format("{}", point.nodes),
                          fmt::format("{}", point.repeat), fmt::format("{}", fmt::join(point.overrides, " "))};
    auto const found = reported.result_of_point.find(point.name);
    append(row, found == reported.result_of_point.end() ? std::vector<Cell>{Cell("MISSING", Tone::notice), "", "", ""}
                                                        : status_cells(input.results[found->second].file.result));
    row.emplace_back(point.predicted_seconds ? seconds_text(*point.predicted_seconds) : "none");
    row.emplace_back(point.predicted_bytes ? mebibytes(*point.predicted_bytes) : "none");
    if (chooses) row.insert(row.begin() + 1, point.choice);
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<ExpectedTimes> expected_times(Study const& study, std::vector<ScalingLine> const& lines) {
  ExpectedTimes predicted{"predicted before the runs", {}}, fitted{"fitted model", {}},
      beyond{"model beyond the fit", {}};
  std::set<std::int64_t> seen;
  for (StudyPoint const& point : study.points)
    if (point.predicted_seconds && seen.insert(point.ranks).second)
      predicted.seconds.emplace_back(point.ranks, *point.predicted_seconds);
  if (study.model) {
    for (ModelPoint const& point : study.model->points) fitted.seconds.emplace_back(point.ranks, point.seconds);
    for (ModelPoint const& point : study.model->predictions) beyond.seconds.emplace_back(point.ranks, point.seconds);
  }
  std::vector<ExpectedTimes> all = floors_of(lines);
  for (ExpectedTimes* times : {&predicted, &fitted, &beyond}) {
    std::ranges::sort(times->seconds);
    if (!times->seconds.empty()) all.push_back(std::move(*times));
  }
  return all;
}

/// What was held the same, by the results; study.json is only a plan.
void append_invariants(Page& page, Study const& study, std::vector<ScalingLine> const& lines) {
  bool any = false;
  for (ScalingLine const& line : lines) {
    if (line.rates.size() < 2) continue;
    Invariant const found =
        has_choices(study.kind) ? invariant_of_choices(line, study.kind) : invariant_of(line, study.limit);
    bool const as_planned = found.kind == study.kind;
    page.emplace_back(Line{fmt::format("Held the same in {}, by these results: {}{}.", line.name, found.text,
                                       as_planned ? "" : fmt::format("; this is no {} study", to_string(study.kind))),
                           as_planned ? Tone::plain : Tone::bad});
    any = true;
  }
  if (any) return;
  char const* const several = has_choices(study.kind) ? "of several choices" : "on several numbers of ranks";
  page.emplace_back(Line{fmt::format("No line has results {} to prove it by.", several), Tone::notice});
}

void append_model(Page& page, StudyModel const& model) {
  page.emplace_back(Heading{3, "Fitted model"});
  page.emplace_back(Line{"time of a step = " + model.form});
  Table parameters{{"parameter", "value"}, {}};
  for (auto const& [name, value] : model.parameters) parameters.rows.push_back({name, fmt::format("{:g}", value)});
  page.emplace_back(std::move(parameters));
  Table points{{"ranks", "measured", "fitted", "residual", ""}, {}};
  for (ModelPoint const& point : model.points)
    points.rows.push_back({fmt::format("{}", point.ranks), seconds_text(*point.measured_seconds),
                           seconds_text(point.seconds), fmt::format("{:+.1f} %", 100 * *point.residual),
                           point.flagged ? Cell("beyond the limit", Tone::bad) : Cell("")});
  for (ModelPoint const& point : model.predictions)
    points.rows.push_back({fmt::format("{}", point.ranks), "not run", seconds_text(point.seconds), "", "prediction"});
  page.emplace_back(std::move(points));
}

void append_scaling(Page& page, ReportedStudy const& reported, std::vector<NamedResult const*> const& results) {
  Study const& study = reported.study;
  bool const flops = study.kind == StudyKind::weak_model;
  std::vector<ScalingLine> const lines = scaling_lines(results, Told::by_study, flops);
  append_invariants(page, study, lines);
  append_figures(page, scaling_figures(reported.name, lines, flops, expected_times(study, lines)));
  if (study.model) append_model(page, *study.model);
}

void append_choices(Page& page, ReportedStudy const& reported, ReportInput const& input,
                    std::vector<NamedResult const*> const& results) {
  std::vector<ScalingLine> const lines =
      scaling_lines(results, Told::by_study, false, number_of_choice(reported, input));
  append_invariants(page, reported.study, lines);
  Page choices = reported.study.kind == StudyKind::to_loss ? to_loss_section(reported.name, reported, input)
                                                           : choices_section(reported.name, reported.study, lines);
  for (Block& block : choices) page.push_back(std::move(block));
}

} // namespace

Table overview_table(std::vector<NamedResult> const& results) {
  Table table{{"result", "deck", "class", "ranks", "nodes", "status", "rate", "ci95, tokens/s", "step, median",
               "memory of rank 0"},
              {}};
  for (NamedResult const& named : results) {
    Result const& result = named.file.result;
    std::vector<Cell> row{named.name, result.deck, result.benchmark_class.name,
                          fmt::format("{}", result.topology.ranks), fmt::format("{}", result.topology.nodes)};
    append(row, status_cells(result));
    row.emplace_back(mebibytes(total(result.counted.memory_bytes)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Page scaling_section(ReportInput const& input) {
  std::set<std::size_t> studied;
  for (ReportedStudy const& reported : input.studies)
    for (auto const& [name, place] : reported.result_of_point) studied.insert(place);
  std::vector<NamedResult const*> results;
  std::set<std::int64_t> ranks;
  for (std::size_t i = 0; i < input.results.size(); ++i) {
    if (studied.contains(i)) continue;
    results.push_back(&input.results[i]);
    ranks.insert(input.results[i].file.result.topology.ranks);
  }
  if (ranks.size() < 2) return {};
  std::vector<ScalingLine> const lines = scaling_lines(results, Told::by_values, false);
  Page page{Heading{2, "Scaling"}};
  for (ScalingLine const& line : lines)
    if (line.rates.size() > 1) page.emplace_back(Line{fmt::format("{}: {}.", line.name, invariant_of(line).text)});
  if (std::string const names = left_out(results); !names.empty())
    page.emplace_back(Line{"Left out of the plots: " + names + ".", Tone::bad});
  append_figures(page, scaling_figures("", lines, false, floors_of(lines)));
  return page;
}

Page study_section(ReportedStudy const& reported, ReportInput const& input) {
  Study const& study = reported.study;
  bool const chooses = has_choices(study.kind);
  Page page{Heading{2, fmt::format("Study {}: {} of {}", reported.name,
                                   chooses ? to_string(study.kind) : to_string(study.kind) + " scaling", study.deck)}};
  page.emplace_back(Line{"To be held the same, says study.json: " + study.invariant});
  std::string missing;
  for (StudyPoint const& point : study.points)
    if (!reported.result_of_point.contains(point.name)) missing += (missing.empty() ? "" : ", ") + point.name;
  if (!missing.empty()) page.emplace_back(Line{"Missing: " + missing, Tone::notice});
  page.emplace_back(points_table(reported, input));
  std::vector<NamedResult const*> results;
  for (StudyPoint const& point : study.points)
    if (auto const found = reported.result_of_point.find(point.name); found != reported.result_of_point.end())
      results.push_back(&input.results[found->second]);
  if (std::string const names = left_out(results); !names.empty())
    page.emplace_back(Line{"Left out of the plots: " + names + ".", Tone::bad});
  if (chooses)
    append_choices(page, reported, input, results);
  else
    append_scaling(page, reported, results);
  return page;
}

} // namespace trainstone
