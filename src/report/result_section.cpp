#include "report/result_section.hpp"

#include "core/plural.hpp"
#include "report/bubble_section.hpp"
#include "report/intensity_section.hpp"
#include "report/output.hpp"
#include "report/report_text.hpp"
#include "report/result_plots.hpp"
#include "report/servers_section.hpp"
#include "report/step_section.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace trainstone {

namespace {

void append_lines(Page& page, std::string const& lines, Tone tone) {
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) page.emplace_back(Line{line, tone});
}

void append_outcome(Page& page, Result const& result) {
  Tone const tone = tone_of(result.outcome);
  page.emplace_back(Line{"RESULT: " + to_string(result.outcome), tone});
  if (result.outcome == Outcome::valid && result.golden && !result.golden->released)
    page.emplace_back(Line{"Its golden file is not one of the release: it proves no benchmark class.", Tone::notice});
  if (result.outcome == Outcome::invalid)
    page.emplace_back(
        Line{"A check failed: nothing below is a result of the machine, and its rate is in no comparison.", tone});
  if (result.outcome == Outcome::emulated)
    page.emplace_back(Line{
        "Its time is not the machine's: a network is emulated, or a delay, a pace or an overflow injected.", tone});
  if (result.outcome == Outcome::stopped)
    page.emplace_back(Line{"It was stopped with a checkpoint to go on from; nothing was verified.", tone});
  if (!result.checks.empty()) append_lines(page, verification_lines(result.checks), tone);
  if (result.tokens_per_second)
    append_lines(page, rate_lines(result.outcome, *result.tokens_per_second, result.topology.ranks), tone);
  else if (result.outcome != Outcome::stopped)
    page.emplace_back(Line{"There is no rate: no step was measured.", Tone::notice});
}

Cell outcome_cell(Check const& check) {
  if (!check.made) return {"unknown", Tone::notice};
  return check.passed ? Cell("passed", Tone::good) : Cell("FAILED", Tone::bad);
}

Table checks_table(Result const& result) {
  Table table{{"check", "outcome", "value", "limit", "what was compared"}, {}};
  for (Check const& check : result.checks)
    table.rows.push_back({check.name, outcome_cell(check),
                          std::isfinite(check.value) ? fmt::format("{:g}", check.value) : "no number",
                          check.made ? fmt::format("{:g}", check.limit) : "none", check.detail});
  return table;
}

std::string class_text(ClassJudgement const& judgement) {
  if (judgement.departures.empty()) return judgement.name;
  return fmt::format("{}, not as the deck says: {}", judgement.name, fmt::join(judgement.departures, "; "));
}

/// "1 thread", "1 thread and 2 threads of libraries".
std::string threads_text(TopologyInfo const& topology) {
  std::string const kernels = plural(topology.threads_per_rank, "thread");
  if (topology.threads_of_libraries <= topology.threads_per_rank) return kernels;
  return fmt::format("{} and {} of libraries", kernels, plural(topology.threads_of_libraries, "thread"));
}

std::string golden_text(std::optional<GoldenSource> const& golden) {
  if (!golden) return "none";
  return fmt::format("{}, digest {}, recorded with {}", golden->released ? "released" : "local", golden->digest,
                     golden->recorded_with);
}

/// "[2,2,1]" of "[2.0, 2.0, 1.0]".
std::string without_fractions(std::string text) {
  std::erase(text, ' ');
  for (std::size_t place; (place = text.find(".0")) != std::string::npos;) text.erase(place, 2);
  return text;
}

/// "parameter_server, 2 servers", "zero 1; 2 tensor ranks, 4 slices, shared positions; 2 stages, 1f1b". Keys that a
/// file does not have are left out.
std::string split_text(std::map<std::string, std::string> const& values) {
  auto const value_of = [&](std::string const& key) {
    auto const found = values.find(key);
    std::string text = found == values.end() ? std::string() : found->second;
    std::erase(text, '"');
    return text;
  };
  auto const value = [&](std::string const& name) { return value_of("parallel." + name); };
  auto const is_above = [&](std::string const& name, std::string_view least) {
    std::string const text = value(name);
    return !text.empty() && text != least;
  };
  std::string text = value("strategy");
  for (char const* const key : {"zero_stage", "shard_group"})
    if (is_above(key, "0")) text += " " + value(key);
  if (value_of("server.colocated") == "true")
    text += ", every rank serves";
  else if (value("strategy") == "parameter_server")
    text += fmt::format(", {} server{}", value_of("server.count"), value_of("server.count") == "1" ? "" : "s");
  if (std::string const mode = value_of("server.mode"); mode == "async" || mode == "bounded") text += ", " + mode;
  if (is_above("tensor", "1") || is_above("tensor_blocks", "0")) {
    text += fmt::format("; {} tensor rank{}", value("tensor"), is_above("tensor", "1") ? "s" : "");
    if (is_above("tensor_blocks", "0")) text += fmt::format(", {} slices", value("tensor_blocks"));
    if (value("sequence") == "true") text += ", shared positions";
    if (value("tensor_keep_gathered") == "true") text += ", gathered rows kept";
    if (is_above("tensor_row_chunks", "1"))
      text += fmt::format(", sums in {} chunks of rows", value("tensor_row_chunks"));
  }
  if (std::string const grid = without_fractions(value("tensor_grid")); !grid.empty() && grid != "[1,1,1]")
    text += "; grid " + grid;
  if (is_above("pipeline", "1")) {
    text += fmt::format("; {} stages, {}", value("pipeline"), value("pipeline_schedule"));
    if (is_above("pipeline_chunks", "1")) text += fmt::format(", {} chunks each", value("pipeline_chunks"));
  }
  return text;
}

Table provenance_table(NamedResult const& named) {
  auto const& [path, time, result, values] = named.file;
  TopologyInfo const& topology = result.topology;
  std::string const commit =
      result.code.git.empty() ? "unknown" : result.code.git + (result.code.dirty ? " dirty" : " clean");
  std::string where =
      fmt::format("{} on {}, {} each", plural(topology.ranks, "rank"),
                  plural(topology.nodes, topology.emulated_nodes ? "emulated node" : "node"), threads_text(topology));
  if (topology.network.is_slow()) where += ", emulated network";
  Table table{{"", ""}, {}};
  table.rows = {
      {"file", path},
      {"written", time},
      {"deck", result.deck},
      {"benchmark class", class_text(result.benchmark_class)},
      {"hash of all values, of those of the loss curve", result.deck_hash + ", " + result.golden_key},
      {"golden file", golden_text(result.golden)},
      {"code", fmt::format("trainstone {}, commit {}", result.code.version, commit)},
      {"compiler", result.code.compiler},
      {"Kokkos", result.code.kokkos},
      {"MPI", result.machine.mpi + ", buffers " + topology.buffers},
      {"ranks", where},
      {"how they share the work", split_text(values)},
      {"device", result.machine.device.empty() ? "none, kernels run on the host" : result.machine.device},
      {"processor", fmt::format("{}, {} for a process", result.machine.cpu, plural(result.machine.cores, "core"))},
      {"memory of the machine", fmt::format("{} bytes", result.machine.memory_bytes)},
      {"wall time", seconds_text(result.wall_seconds)}};
  if (result.state_files) table.rows.push_back({"files of state", to_string(*result.state_files)});
  return table;
}

std::vector<Cell> compared(std::string const& name, std::uint64_t predicted, std::uint64_t counted) {
  auto const difference = static_cast<std::int64_t>(counted - predicted);
  return {name, fmt::format("{}", predicted), fmt::format("{}", counted),
          difference == 0 ? Cell("none") : Cell(fmt::format("{:+}", difference), Tone::bad)};
}

Table work_table(Result const& result) {
  Table table{{"per step of rank 0", "predicted", "counted", "difference"}, {}};
  WorkAmounts const &predicted = result.predicted, &counted = result.counted;
  table.rows = {compared("bytes sent", predicted.sent_bytes, counted.sent_bytes),
                compared("messages", predicted.messages, counted.messages),
                compared("FLOP of matrix products and attention", predicted.flops, counted.flops),
                compared("kernels started", predicted.kernel_launches, counted.kernel_launches)};
  if (predicted.start || counted.start) {
    StartAmounts const expected = predicted.start.value_or(StartAmounts()),
                       found = counted.start.value_or(StartAmounts());
    table.rows.push_back(compared("bytes sent before the first step, in all", expected.sent_bytes, found.sent_bytes));
    table.rows.push_back(compared("messages before the first step, in all", expected.messages, found.messages));
  }
  if (predicted.offload && counted.offload) {
    StateMoves const &expected = predicted.offload->moves, &found = counted.offload->moves;
    for (auto const& [name, amount] : {std::pair{"bytes of state to the host", &StateMoves::to_host},
                                       std::pair{"bytes of state to the kernels", &StateMoves::to_kernels},
                                       std::pair{"bytes of state read from files", &StateMoves::read},
                                       std::pair{"bytes of state written to files", &StateMoves::written},
                                       std::pair{"reads and writes of files", &StateMoves::requests}})
      table.rows.push_back(compared(name, expected.*amount, found.*amount));
  }
  return table;
}

Table memory_table(Result const& result) {
  Table table{{"bytes of rank 0, at most at a time", "predicted", "counted", "difference"}, {}};
  for (auto const& [name, bytes] : result.predicted.memory_bytes)
    table.rows.push_back(compared(name, bytes, amount_of(result.counted.memory_bytes, name)));
  table.rows.push_back(compared("total", total(result.predicted.memory_bytes), total(result.counted.memory_bytes)));
  return table;
}

} // namespace

Page result_section(NamedResult const& named) {
  Result const& result = named.file.result;
  Page page{Heading{2, fmt::format("{}: {} on {}", named.name, result.deck, plural(result.topology.ranks, "rank"))}};
  append_outcome(page, result);
  if (!result.checks.empty()) page.emplace_back(checks_table(result));
  page.emplace_back(Heading{3, "Where it comes from"});
  page.emplace_back(provenance_table(named));
  page.emplace_back(Heading{3, "Predicted and counted"});
  page.emplace_back(work_table(result));
  page.emplace_back(memory_table(result));
  if (result.servers)
    for (Block& block : servers_section(*result.servers)) page.push_back(std::move(block));
  if (result.pipeline)
    for (Block& block : bubble_section(*result.pipeline)) page.push_back(std::move(block));
  for (Block& block : intensity_section(named)) page.push_back(std::move(block));
  for (Block& block : step_section(named)) page.push_back(std::move(block));
  page.emplace_back(Heading{3, "Plots"});
  for (Figure& figure : result_figures(named)) page.emplace_back(std::move(figure));
  return page;
}

} // namespace trainstone
