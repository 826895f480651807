#include "report/simulate_table.hpp"

#include "report/crossover_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace trainstone {

namespace {

constexpr double micro = 1e-6, giga = 1e9;

/// The rows from `first` on that belong together.
template <class Same>
std::span<SimulatedRow const> run_of(std::span<SimulatedRow const> rows, std::size_t first, Same const& same) {
  std::size_t last = first;
  while (last < rows.size() && same(rows[last], rows[first])) ++last;
  return rows.subspan(first, last - first);
}

bool same_collective(SimulatedRow const& a, SimulatedRow const& b) { return a.collective == b.collective; }
bool same_size(SimulatedRow const& a, SimulatedRow const& b) { return same_collective(a, b) && a.bytes == b.bytes; }

std::string row_line(SimulatedRow const& row, bool quickest) {
  std::string rates = fmt::format("{:>12} {:>12}", "-", "-");
  if (row.bytes > 0 && row.seconds > 0) {
    double const rate = static_cast<double>(row.bytes) / row.seconds / giga;
    rates = fmt::format("{:>12.3f} {:>12.3f}", rate, rate * row.bus_factor);
  }
  std::string line = fmt::format("{:<15} {:>14}  {:<26} {:>14.2f} {}", row.collective, row.bytes, row.algorithm,
                                 row.seconds / micro, rates);
  if (quickest || row.extrapolated) line += fmt::format("  {}{}", quickest ? "*" : " ", row.extrapolated ? " ~" : "");
  return line + "\n";
}

std::string size_lines(std::span<SimulatedRow const> rows) {
  auto const quickest = std::ranges::min_element(rows, {}, &SimulatedRow::seconds); // the first of equals, as auto's
  std::string text;
  for (auto row = rows.begin(); row != rows.end(); ++row) text += row_line(*row, rows.size() > 1 && row == quickest);
  return text;
}

std::string crossover_lines(std::span<SimulatedRow const> rows) {
  std::vector<SizeComparison> sizes;
  for (std::size_t i = 0; i < rows.size();) {
    auto const size = run_of(rows, i, same_size);
    sizes.push_back({rows[i].bytes, {}});
    for (SimulatedRow const& row : size) sizes.back().competitors.push_back({row.algorithm, row.seconds, {}});
    i += size.size();
  }
  std::vector<CrossoverRow> const choices = crossover_rows(sizes);
  if (choices.empty()) return "";
  return fmt::format("\n{}\n{}", rows.front().collective, crossover_table(choices));
}

} // namespace

std::string simulate_table(SimulatedMachine const& machine, std::span<SimulatedRow const> rows) {
  std::string text = fmt::format(
      "# predicted, not measured: {} rank{} on {} node{} in block order, {}\n# machine: {}\n", machine.ranks,
      machine.ranks == 1 ? "" : "s", machine.nodes, machine.nodes == 1 ? "" : "s", machine.type, machine.machine);
  text += "# * quickest of its size   ~ size outside of what the machine was measured for\n";
  text += fmt::format("{:<15} {:>14}  {:<26} {:>14} {:>12} {:>12}\n", "collective", "size B", "algorithm", "time us",
                      "algbw GB/s", "busbw GB/s");
  for (std::size_t i = 0; i < rows.size();) {
    auto const size = run_of(rows, i, same_size);
    text += size_lines(size);
    i += size.size();
  }
  for (std::size_t i = 0; i < rows.size();) {
    auto const collective = run_of(rows, i, same_collective);
    text += crossover_lines(collective);
    i += collective.size();
  }
  return text;
}

} // namespace trainstone
