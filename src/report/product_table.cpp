#include "report/product_table.hpp"

#include "core/json_text.hpp"
#include "core/plural.hpp"
#include "result/statistics.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace trainstone {

namespace {

using Json = nlohmann::ordered_json;

constexpr double mebi = 1024.0 * 1024.0, giga = 1e9, milli = 1e-3;

double flops(ProductSize const& size) {
  return 2.0 * static_cast<double>(size.m) * static_cast<double>(size.n) * static_cast<double>(size.k);
}

std::string in_mebi(double bytes) { return fmt::format("{:.3f}", bytes / mebi); }
std::string in_milli(std::optional<double> seconds) {
  return seconds ? fmt::format("{:.3f}", *seconds / milli) : std::string("-");
}

bool has_time(ProductRow const& row) { return row.is_right() && !row.seconds.empty(); }

constexpr auto line_format =
    "{} {:<7} {:>13} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8} {:>10} {:>9} {:>6} {:>6}\n";

std::string row_line(ProductSize const& size, ProductRow const& row) {
  bool const timed = has_time(row);
  auto const quantile_of = [&](double share) {
    return timed ? std::optional(quantile(row.seconds, share)) : std::nullopt;
  };
  std::optional<double> const residual = row.residual();
  return fmt::format(
      line_format, " ", row.name, to_string(row.grid), row.counted.messages,
      in_mebi(static_cast<double>(row.counted.sent_bytes)), in_mebi(row.bound_bytes),
      in_mebi(static_cast<double>(row.counted.kept_bytes)), timed ? in_milli(quantile_of(0.5)) : "WRONG",
      in_milli(quantile_of(0.05)), in_milli(quantile_of(0.95)),
      in_milli(timed ? row.predicted_seconds() : std::nullopt), residual ? fmt::format("{:.1f}", *residual * 100) : "-",
      in_milli(timed ? std::optional(median(row.multiply_seconds)) : std::nullopt),
      timed ? fmt::format("{:.2f}", flops(size) / median(row.seconds) / giga) : "-", row.wrong, row.unlike);
}

Json counts_json(ProductCounts const& counts) {
  return {{"messages", counts.messages}, {"sent_bytes", counts.sent_bytes}, {"kept_bytes", counts.kept_bytes}};
}

Json times_json(std::vector<double> const& seconds) {
  return {{"p50", median(seconds)},
          {"p05", quantile(seconds, 0.05)},
          {"p95", quantile(seconds, 0.95)},
          {"samples", seconds}};
}

Json row_json(ProductSize const& size, ProductRow const& row) {
  bool const timed = has_time(row);
  auto const number = [](std::optional<double> value) { return value ? Json(*value) : Json(nullptr); };
  return {{"algorithm", row.name},
          {"grid", {row.grid.x, row.grid.y, row.grid.z}},
          {"predicted", counts_json(row.predicted)},
          {"counted", counts_json(row.counted)},
          {"unlike_ranks", row.unlike},
          {"bound_bytes", row.bound_bytes},
          {"wrong", row.wrong},
          {"seconds", timed ? times_json(row.seconds) : Json(nullptr)},
          {"product_seconds", timed ? times_json(row.multiply_seconds) : Json(nullptr)},
          {"predicted_exchange_seconds", row.exchange_seconds},
          {"predicted_seconds", timed ? number(row.predicted_seconds()) : Json(nullptr)},
          {"residual", number(row.residual())},
          {"flops_per_second", timed ? Json(flops(size) / median(row.seconds)) : Json(nullptr)}};
}

} // namespace

std::optional<double> ProductRow::predicted_seconds() const {
  if (multiply_seconds.empty()) return std::nullopt;
  return exchange_seconds + median(multiply_seconds);
}

std::optional<double> ProductRow::residual() const {
  std::optional<double> const expected = predicted_seconds();
  if (!is_right() || seconds.empty() || !expected) return std::nullopt;
  return *expected / median(seconds) - 1;
}

std::string product_header_lines(ProductHeader const& header) {
  auto const [m, n, k] = header.size;
  return fmt::format(
      "# trainstone {} | Kokkos {} | {} | {}\n"
      "# {} on {}{} | buffers {} | C ({}, {}) fp32 = A ({}, {}) B ({}, {}) {}, products by {}\n"
      "# predictions: exchanges and copies by {}; products as measured alone\n"
      "# counts: of the busiest rank; unlike: ranks whose messages, bytes or memory are not as predicted\n"
      "# times: {}\n",
      header.version, header.kokkos, header.mpi, header.cpu, plural(header.ranks, "rank"),
      header.emulated_nodes ? fmt::format("{} emulated ", header.nodes) : "",
      header.emulated_nodes ? "nodes" : plural(header.nodes, "node"), header.buffers, m, n, m, k, k, n, header.type,
      header.gemm, header.machine, header.timing);
}

std::string product_table(ProductSize const& size, std::vector<ProductRow> const& rows) {
  std::string text = fmt::format(line_format, "#", "", "grid", "messages", "sent", "bound", "kept", "time p50", "p05",
                                 "p95", "predicted", "residual", "products", "rate", "#wrong", "unlike");
  text += fmt::format(line_format, "#", "", "x y z", "", "(MiB)", "(MiB)", "(MiB)", "(ms)", "(ms)", "(ms)", "(ms)",
                      "(%)", "(ms)", "(GFLOP/s)", "", "");
  for (ProductRow const& row : rows) text += row_line(size, row);
  return text;
}

std::string product_json(ProductHeader const& header, std::vector<ProductRow> const& rows,
                         std::vector<std::string> const& left_out) {
  Json json{{"schema_version", 1},
            {"kind", "matmul"},
            {"status", std::ranges::all_of(rows, &ProductRow::is_right) ? "RIGHT" : "WRONG"},
            {"header",
             {{"version", header.version},
              {"mpi", header.mpi},
              {"cpu", header.cpu},
              {"kokkos", header.kokkos},
              {"buffers", header.buffers},
              {"machine", header.machine},
              {"timing", header.timing},
              {"ranks", header.ranks},
              {"nodes", header.nodes},
              {"emulated_nodes", header.emulated_nodes},
              {"m", header.size.m},
              {"n", header.size.n},
              {"k", header.size.k},
              {"type", header.type},
              {"gemm", header.gemm},
              {"left_out", left_out}}},
            {"rows", Json::array()}};
  for (ProductRow const& row : rows) json["rows"].push_back(row_json(header.size, row));
  return json_text(json);
}

} // namespace trainstone
