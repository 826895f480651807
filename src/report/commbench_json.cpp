// commbench's measurements as a file. Part of commbench_table.hpp.

#include "report/commbench_table.hpp"

#include "core/json_text.hpp"
#include "result/statistics.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace trainstone {

namespace {

using Json = nlohmann::ordered_json;

constexpr int schema_version = 1;

Json optional_json(std::optional<double> value) { return value ? Json(*value) : Json(nullptr); }

Json header_json(CommbenchHeader const& header) {
  Json settings = Json::object();
  for (auto const& [name, value] : header.mpi_settings) settings[name] = value;
  return {{"version", header.version},
          {"mpi", header.mpi},
          {"nccl", header.nccl.empty() ? Json(nullptr) : Json(header.nccl)},
          {"thread_level", header.thread_level},
          {"mpi_settings", settings},
          {"transports", header.transports},
          {"ranks", header.ranks},
          {"nodes", header.nodes},
          {"emulated_nodes", header.emulated_nodes},
          {"cpu", header.cpu},
          {"kokkos", header.kokkos},
          {"buffers", header.buffers},
          {"predictions", header.machine},
          {"choices", header.choice},
          {"timing", header.timing}};
}

Json drift_json(Drift const& drift) {
  Json json = Json::object();
  for (auto const& [name, ratio] : drift) json[name] = ratio;
  return json;
}

Json row_json(CommbenchRow const& row) {
  Json json = {{"collective", row.collective},
               {"type", row.type},
               {"operation", row.operation},
               {"root", row.root},
               {"algorithm", row.algorithm},
               {"picked", row.picked.empty() ? Json(nullptr) : Json(row.picked)},
               {"bytes", row.bytes},
               {"count", row.count},
               {"wrong", row.wrong ? Json(*row.wrong) : Json(nullptr)}};
  bool const right = !row.is_wrong() && !row.seconds.empty();
  std::optional<double> const rate = algorithm_bandwidth(row);
  json["seconds"] = right ? Json{{"p50", median(row.seconds)},
                                 {"p05", quantile(row.seconds, 0.05)},
                                 {"p95", quantile(row.seconds, 0.95)},
                                 {"samples", row.seconds},
                                 {"calls_per_sample", row.calls}}
                          : Json(nullptr);
  json["algorithm_bytes_per_second"] = rate ? Json(*rate * 1e9) : Json(nullptr);
  json["bus_bytes_per_second"] = rate ? Json(*rate * 1e9 * row.bus_factor) : Json(nullptr);
  json["predicted_seconds"] = optional_json(row.predicted_seconds);
  json["residual"] = optional_json(residual(row));
  return json;
}

Json summary_json(std::span<CommbenchRow const> rows) {
  Json ratios = Json::array();
  for (RatioToMpi const& line : ratios_to_mpi(rows)) {
    ratios.push_back({{"algorithm", line.algorithm},
                      {"geometric_mean", line.geometric_mean},
                      {"minimum", line.minimum},
                      {"minimum_bytes", line.minimum_bytes},
                      {"sizes", line.sizes}});
  }
  Json scores = Json::array();
  for (PredictionScore const& line : prediction_scores(rows))
    scores.push_back({{"algorithm", line.algorithm}, {"within", line.within}, {"sizes", line.sizes}});
  Json crossovers = Json::array();
  std::vector<SizeComparison> const sizes = comparisons(rows);
  for (CrossoverRow const& row : crossover_rows(sizes)) {
    crossovers.push_back(
        {{"bytes", row.bytes}, {"picked", row.picked}, {"fastest", row.fastest}, {"loss", optional_json(row.loss)}});
  }
  return {{"collective", rows.front().collective},
          {"type", rows.front().type},
          {"ratios_to_mpi", ratios},
          {"predictions", {{"limit", prediction_limit}, {"scores", scores}}},
          {"crossovers", crossovers}};
}

/// Up to which row, from the first on, all are of one collective and type.
std::size_t same_kind(std::span<CommbenchRow const> rows) {
  auto const end = std::ranges::find_if(rows, [&](CommbenchRow const& row) {
    return row.collective != rows.front().collective || row.type != rows.front().type;
  });
  return static_cast<std::size_t>(end - rows.begin());
}

} // namespace

std::string commbench_json(CommbenchHeader const& header, Drift const& before, std::optional<Drift> const& after,
                           std::span<CommbenchRow const> rows) {
  Json json = {{"schema_version", schema_version}, {"kind", "commbench"}, {"header", header_json(header)}};
  json["finished"] = after.has_value();
  json["drift"] = {{"before", drift_json(before)}, {"after", after ? drift_json(*after) : Json(nullptr)}};
  bool const right = std::ranges::none_of(rows, &CommbenchRow::is_wrong);
  json["status"] = right ? "RIGHT" : "WRONG";
  json["rows"] = Json::array();
  for (CommbenchRow const& row : rows) json["rows"].push_back(row_json(row));
  json["summaries"] = Json::array();
  for (std::size_t first = 0; first < rows.size();) {
    std::size_t const count = same_kind(rows.subspan(first));
    json["summaries"].push_back(summary_json(rows.subspan(first, count)));
    first += count;
  }
  return json_text(json);
}

} // namespace trainstone
