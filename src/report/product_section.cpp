#include "report/product_section.hpp"

#include "core/plural.hpp"
#include "report/report_text.hpp"

#include <algorithm>

namespace trainstone {

namespace {

constexpr double giga = 1e9;

/// What was counted, and what was predicted if that is not the same.
Cell counted(std::uint64_t found, std::uint64_t predicted, std::string (*text)(std::uint64_t)) {
  if (found == predicted) return text(found);
  return {fmt::format("{}, predicted {}", text(found), text(predicted)), Tone::bad};
}

std::string as_number(std::uint64_t value) { return fmt::format("{}", value); }
std::string as_bytes(std::uint64_t value) { return fmt::format("{} B", value); }

std::vector<Cell> cells_of(ProductFileRow const& row, double fastest) {
  std::vector<Cell> cells{row.algorithm,
                          fmt::format("{} x {} x {}", row.grid[0], row.grid[1], row.grid[2]),
                          counted(row.messages, row.predicted_messages, as_number),
                          counted(row.sent, row.predicted_sent, as_bytes),
                          fmt::format("{:.0f} B", row.bound),
                          counted(row.kept, row.predicted_kept, as_bytes)};
  if (!row.seconds) {
    cells.emplace_back("WRONG", Tone::bad);
    cells.resize(10, "-");
    return cells;
  }
  cells.emplace_back(seconds_text(*row.seconds), *row.seconds == fastest ? Tone::good : Tone::plain);
  cells.emplace_back(row.predicted_seconds ? seconds_text(*row.predicted_seconds) : "-");
  cells.emplace_back(row.predicted_seconds ? fmt::format("{:+.1f} %", 100 * (*row.predicted_seconds / *row.seconds - 1))
                                           : "-");
  cells.emplace_back(fmt::format("{:.2f} GFLOP/s", *row.flops_per_second / giga));
  return cells;
}

} // namespace

Page product_section(NamedProduct const& named) {
  ProductFile const& file = named.file;
  Table table{
      {"algorithm", "grid x y z", "messages", "sent", "lower bound", "kept", "time", "predicted", "residual", "rate"},
      {}};
  double fastest = 0;
  for (ProductFileRow const& row : file.rows)
    if (row.seconds && (fastest == 0 || *row.seconds < fastest)) fastest = *row.seconds;
  for (ProductFileRow const& row : file.rows) table.rows.push_back(cells_of(row, fastest));
  bool const right = std::ranges::all_of(file.rows, &ProductFileRow::right);
  return {
      Heading{2, "Distributed product " + named.name},
      Line{fmt::format("C ({}, {}) fp32 = A ({}, {}) B ({}, {}) {} on {}, {}{}; products by {}; {}, {}.", file.m,
                       file.n, file.m, file.k, file.k, file.n, file.type, plural(file.ranks, "rank"),
                       file.emulated_nodes ? "emulated " : "", plural(file.nodes, "node"), file.gemm, file.cpu,
                       file.version)},
      right ? Line{"All elements are exact, and messages, bytes and memory are as predicted.", Tone::good}
            : Line{"Elements are wrong, or messages, bytes or memory are not as predicted.", Tone::bad},
      table,
      Line{fmt::format("Counts are of the busiest rank. Lower bound: what some rank of any product sends. Predicted: "
                       "exchanges by {}; local products as measured.",
                       file.machine)}};
}

} // namespace trainstone
