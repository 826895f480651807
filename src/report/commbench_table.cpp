#include "report/commbench_table.hpp"

#include "core/error.hpp"
#include "result/statistics.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace trainstone {

namespace {

constexpr double micro = 1e6;
constexpr double giga = 1e9;

bool has_time(CommbenchRow const& row) { return !row.is_wrong() && !row.seconds.empty(); }

std::string number(std::optional<double> value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

/// Median over passes of MPI's time over ours.
double ratio(CommbenchRow const& mpi, CommbenchRow const& ours) {
  TRAINSTONE_REQUIRE(mpi.seconds.size() == ours.seconds.size(), "{} samples of mpi, {} of {}", mpi.seconds.size(),
                     ours.seconds.size(), ours.algorithm);
  std::vector<double> ratios;
  for (std::size_t i = 0; i < mpi.seconds.size(); ++i) ratios.push_back(mpi.seconds[i] / ours.seconds[i]);
  return median(ratios);
}

std::string ratio_lines(std::span<CommbenchRow const> rows) {
  std::string text;
  for (RatioToMpi const& line : ratios_to_mpi(rows)) {
    text += fmt::format("#   {:<28} {:>10.2f} {:>10.2f}  at {} B, {} size{}\n", line.algorithm, line.geometric_mean,
                        line.minimum, line.minimum_bytes, line.sizes, line.sizes == 1 ? "" : "s");
  }
  if (text.empty()) return "";
  return fmt::format("# time of mpi / time of ours      {:>10} {:>10}\n", "geo. mean", "minimum") + text;
}

std::string score_lines(std::span<CommbenchRow const> rows) {
  std::string text;
  for (PredictionScore const& line : prediction_scores(rows))
    text += fmt::format("#   {:<28} {:>10} of {}\n", line.algorithm, line.within, line.sizes);
  if (text.empty()) return "";
  return fmt::format("# predictions within {:.0f} % of the median\n", 100 * prediction_limit) + text;
}

} // namespace

bool is_of_library(std::string_view algorithm) { return algorithm == "mpi" || algorithm == "nccl"; }

std::string CommbenchRow::name() const {
  return picked.empty() || algorithm == "mpi" ? algorithm : fmt::format("{} ({})", algorithm, picked);
}

std::vector<CommbenchRow> with_fastest_form(std::vector<CommbenchRow> rows) {
  std::vector<CommbenchRow> kept;
  for (CommbenchRow& row : rows) {
    bool const is_another_form = row.algorithm == "mpi" && !kept.empty() && kept.back().algorithm == "mpi";
    if (!is_another_form)
      kept.push_back(std::move(row));
    else if (median(row.seconds) < median(kept.back().seconds))
      kept.back() = std::move(row);
  }
  return kept;
}

std::optional<double> algorithm_bandwidth(CommbenchRow const& row) {
  if (!has_time(row) || row.bytes == 0) return {};
  return static_cast<double>(row.bytes) / median(row.seconds) / giga;
}

std::optional<double> residual(CommbenchRow const& row) {
  if (!has_time(row) || !row.predicted_seconds) return {};
  return *row.predicted_seconds / median(row.seconds) - 1;
}

std::vector<RatioToMpi> ratios_to_mpi(std::span<CommbenchRow const> rows) {
  std::map<std::uint64_t, CommbenchRow const*> mpi; // by size
  for (CommbenchRow const& row : rows)
    if (row.algorithm == "mpi" && has_time(row)) mpi[row.bytes] = &row;
  std::vector<RatioToMpi> lines;
  for (CommbenchRow const& row : rows) {
    auto const baseline = mpi.find(row.bytes);
    if (is_of_library(row.algorithm) || !has_time(row) || baseline == mpi.end()) continue;
    auto line = std::ranges::find(lines, row.algorithm, &RatioToMpi::algorithm);
    if (line == lines.end()) line = lines.insert(lines.end(), {.algorithm = row.algorithm, .geometric_mean = 1});
    double const value = ratio(*baseline->second, row);
    if (line->sizes == 0 || value < line->minimum) {
      line->minimum = value;
      line->minimum_bytes = row.bytes;
    }
    auto const before = static_cast<double>(line->sizes++);
    line->geometric_mean = std::exp((std::log(line->geometric_mean) * before + std::log(value)) / (before + 1));
  }
  return lines;
}

std::vector<PredictionScore> prediction_scores(std::span<CommbenchRow const> rows) {
  std::vector<PredictionScore> lines;
  for (CommbenchRow const& row : rows) {
    std::optional<double> const error = residual(row);
    if (row.algorithm == "auto" || !error) continue;
    auto line = std::ranges::find(lines, row.algorithm, &PredictionScore::algorithm);
    if (line == lines.end()) line = lines.insert(lines.end(), {.algorithm = row.algorithm});
    ++line->sizes;
    if (std::abs(*error) <= prediction_limit) ++line->within;
  }
  return lines;
}

std::vector<SizeComparison> comparisons(std::span<CommbenchRow const> rows) {
  std::vector<SizeComparison> sizes;
  for (CommbenchRow const& row : rows) {
    if (is_of_library(row.algorithm) || row.algorithm == "auto" || !has_time(row) || !row.predicted_seconds) continue;
    auto size = std::ranges::find(sizes, row.bytes, &SizeComparison::bytes);
    if (size == sizes.end()) size = sizes.insert(sizes.end(), {.bytes = row.bytes, .competitors = {}});
    size->competitors.push_back({row.name(), *row.predicted_seconds, median(row.seconds)});
  }
  return sizes;
}

std::string commbench_header_lines(CommbenchHeader const& header) {
  std::string settings;
  for (auto const& [name, value] : header.mpi_settings) settings += fmt::format(" {}={}", name, value);
  return fmt::format("# trainstone {} | Kokkos {} | {}, {} | {}\n"
                     "# {} rank{} on {}{} node{} | buffers {}\n"
                     "# control variables:{} | transports loaded: {}\n"
                     "# predictions: {}\n"
                     "# choices: {}\n"
                     "# times: {}\n",
                     header.version, header.kokkos,
                     header.nccl.empty() ? header.mpi : fmt::format("{}, NCCL {}", header.mpi, header.nccl),
                     header.thread_level, header.cpu, header.ranks, header.ranks == 1 ? "" : "s", header.nodes,
                     header.emulated_nodes ? " emulated" : "", header.nodes == 1 ? "" : "s", header.buffers,
                     settings.empty() ? " none set" : settings,
                     header.transports.empty() ? "none seen" : fmt::format("{}", fmt::join(header.transports, " ")),
                     header.machine, header.choice, header.timing);
}

std::string drift_lines(std::string const& when, Drift const& drift) {
  if (drift.empty()) return "";
  constexpr double limit = 1.5;
  std::string text = fmt::format("# {} the measurements, measured / predicted:", when);
  bool moved = false;
  for (auto const& [name, ratio] : drift) {
    text += fmt::format(" {} {:.2f}", name, ratio);
    moved = moved || ratio > limit || ratio < 1 / limit;
  }
  text += "\n";
  if (moved)
    text += "# note: the machine is not in the state that it was calibrated in; predictions are off by as much\n";
  return text;
}

std::string commbench_column_lines() {
  return fmt::format("# {:>12} {:>12} {:>9} {:>6} {:>5}  {:<28} {:>11} {:>11} {:>11} {:>8} {:>8} {:>7} {:>11} {:>8}\n"
                     "# {:>12} {:>12} {:>9} {:>6} {:>5}  {:<28} {:>11} {:>11} {:>11} {:>8} {:>8} {:>7} {:>11} {:>8}\n",
                     "size", "count", "type", "redop", "root", "algorithm", "time p50", "p05", "p95", "algbw", "busbw",
                     "#wrong", "predicted", "residual", "(B)", "(elements)", "", "", "", "", "(us)", "(us)", "(us)",
                     "(GB/s)", "(GB/s)", "", "(us)", "(%)");
}

std::string commbench_row_line(CommbenchRow const& row) {
  std::string const wrong = row.wrong ? std::to_string(*row.wrong) : "-";
  std::string const head = fmt::format("  {:>12} {:>12} {:>9} {:>6} {:>5}  {:<28}", row.bytes, row.count, row.type,
                                       row.operation, row.root, row.name());
  if (!has_time(row)) {
    return fmt::format("{} {:>11} {:>11} {:>11} {:>8} {:>8} {:>7} {:>11} {:>8}", head, "WRONG", "-", "-", "-", "-",
                       wrong, "-", "-");
  }
  Summary const time = summarize(row.seconds);
  std::optional<double> const rate = algorithm_bandwidth(row);
  std::optional<double> const error = residual(row);
  return fmt::format("{} {:>11.2f} {:>11.2f} {:>11.2f} {:>8} {:>8} {:>7} {:>11} {:>8}", head, time.median * micro,
                     time.p05 * micro, time.p95 * micro, number(rate, 2),
                     number(rate ? std::optional(*rate * row.bus_factor) : rate, 2), wrong,
                     number(row.predicted_seconds ? std::optional(*row.predicted_seconds * micro) : std::nullopt, 2),
                     number(error ? std::optional(*error * 100) : error, 1));
}

std::string commbench_summary_lines(std::span<CommbenchRow const> rows) {
  std::string text = ratio_lines(rows) + score_lines(rows);
  std::vector<CrossoverRow> const choices = crossover_rows(comparisons(rows));
  if (choices.empty()) return text;
  return text + "# predicted choice against the measured one\n" + crossover_table(choices);
}

} // namespace trainstone
