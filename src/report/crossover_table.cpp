#include "report/crossover_table.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace trainstone {

namespace {

constexpr double micro = 1e-6;

bool is_time(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

CrossoverRow row_of(SizeComparison const& size) {
  TRAINSTONE_REQUIRE(!size.competitors.empty(), "nothing to pick from at {} bytes", size.bytes);
  Competitor const* picked = nullptr;
  Competitor const* fastest = nullptr;
  for (Competitor const& one : size.competitors) {
    TRAINSTONE_REQUIRE(is_time(one.predicted_seconds), "{} predicted to take {} s at {} bytes", one.name,
                       one.predicted_seconds, size.bytes);
    if (!picked || one.predicted_seconds < picked->predicted_seconds) picked = &one;
    if (!one.measured_seconds) continue;
    TRAINSTONE_REQUIRE(is_time(*one.measured_seconds), "{} measured to take {} s at {} bytes", one.name,
                       *one.measured_seconds, size.bytes);
    if (!fastest || *one.measured_seconds < *fastest->measured_seconds) fastest = &one;
  }
  CrossoverRow row{size.bytes, picked->name, picked->predicted_seconds, picked->measured_seconds, {}, 0, {}};
  if (fastest) {
    row.fastest = fastest->name;
    row.fastest_seconds = *fastest->measured_seconds;
    if (row.measured_seconds && row.fastest_seconds > 0) row.loss = *row.measured_seconds / row.fastest_seconds - 1;
  }
  return row;
}

/// Runs of sizes with the same pick.
std::string predicted_table(std::span<CrossoverRow const> rows) {
  std::string text =
      fmt::format("{:>12} {:>12}  {:<24} {:>12} {:>12}\n", "from B", "to B", "auto picks", "predicted us", "to us");
  for (std::size_t first = 0; first < rows.size();) {
    std::size_t last = first;
    while (last + 1 < rows.size() && rows[last + 1].picked == rows[first].picked) ++last;
    text +=
        fmt::format("{:>12} {:>12}  {:<24} {:>12.2f} {:>12.2f}\n", rows[first].bytes, rows[last].bytes,
                    rows[first].picked, rows[first].predicted_seconds / micro, rows[last].predicted_seconds / micro);
    first = last + 1;
  }
  return text;
}

std::string measured_table(std::span<CrossoverRow const> rows) {
  std::string text = fmt::format("{:>12}  {:<24} {:>12} {:>12}  {:<24} {:>12} {:>8}\n", "size B", "auto picks",
                                 "predicted us", "measured us", "measured fastest", "measured us", "loss %");
  double sum = 0, worst = 0;
  std::size_t compared = 0;
  for (CrossoverRow const& row : rows) {
    std::string const measured = row.measured_seconds ? fmt::format("{:.2f}", *row.measured_seconds / micro) : "-";
    bool const any = !row.fastest.empty();
    text += fmt::format("{:>12}  {:<24} {:>12.2f} {:>12}  {:<24} {:>12} {:>8}\n", row.bytes, row.picked,
                        row.predicted_seconds / micro, measured, any ? row.fastest : "-",
                        any ? fmt::format("{:.2f}", row.fastest_seconds / micro) : "-",
                        row.loss ? fmt::format("{:.1f}", 100 * *row.loss) : "-");
    if (!row.loss) continue;
    sum += *row.loss;
    worst = std::max(worst, *row.loss);
    ++compared;
  }
  if (compared > 0)
    text += fmt::format("loss by choosing from predictions: mean {:.1f} %, largest {:.1f} %, over {} size{}\n",
                        100 * sum / static_cast<double>(compared), 100 * worst, compared, compared == 1 ? "" : "s");
  return text;
}

} // namespace

std::vector<CrossoverRow> crossover_rows(std::span<SizeComparison const> sizes) {
  std::vector<CrossoverRow> rows;
  for (SizeComparison const& size : sizes) {
    CrossoverRow const row = row_of(size);
    if (size.competitors.size() > 1) rows.push_back(row);
  }
  return rows;
}

std::string crossover_table(std::span<CrossoverRow const> rows) {
  bool const measured = std::ranges::any_of(rows, [](CrossoverRow const& row) { return !row.fastest.empty(); });
  return measured ? measured_table(rows) : predicted_table(rows);
}

} // namespace trainstone
