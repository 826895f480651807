#include "result/sweep_file.hpp"

#include "result/json_file.hpp"

#include <fmt/format.h>

#include <cmath>

namespace trainstone {

namespace {

constexpr int schema_version = 1;

SweepFileRow read_row(JsonFile const& file, std::string const& place) {
  return {.ranks = file.count(place + "ranks"),
          .nodes = file.count(place + "nodes"),
          .tensor = file.count(place + "tensor"),
          .data = file.count(place + "data"),
          .pipeline = file.count(place + "pipeline"),
          .samples = file.count(place + "samples_per_step"),
          .needed = file.amount(place + "needed_bytes"),
          .sent = file.amount(place + "sent_bytes"),
          .seconds = file.positive(place + "step_seconds"),
          .efficiency = file.positive(place + "efficiency")};
}

/// Samples per second and rank.
double rate(SweepFileRow const& row) {
  return static_cast<double>(row.samples) / (row.seconds * static_cast<double>(row.ranks));
}

} // namespace

SweepFile read_sweep(JsonFile const& file) {
  file.require_version(schema_version);
  std::string const scaling = file.text("/scaling");
  file.require(scaling == "weak" || scaling == "strong", "/scaling must be \"weak\" or \"strong\"");
  SweepFile read{.path = file.path(),
                 .deck = file.text("/deck"),
                 .machine = file.text("/machine"),
                 .strong = scaling == "strong",
                 .rows = {}};
  for (std::size_t i = 0; i < file.length("/rows"); ++i) {
    SweepFileRow const& row = read.rows.emplace_back(read_row(file, fmt::format("/rows/{}/", i)));
    file.require(i == 0 || row.ranks > read.rows[i - 1].ranks, fmt::format("/rows/{}/ranks must ascend", i));
    file.require(!read.strong || row.samples == read.rows[0].samples,
                 fmt::format("/rows/{}/samples_per_step is another than that of the first row", i));
  }
  file.require(!read.rows.empty(), "/rows must have at least one row");
  for (std::size_t i = 0; i < read.rows.size(); ++i) {
    double const efficiency = rate(read.rows[i]) / rate(read.rows[0]);
    file.require(std::abs(efficiency - read.rows[i].efficiency) <= 1e-9 * efficiency,
                 fmt::format("/rows/{}/efficiency does not follow from the times", i));
  }
  return read;
}

} // namespace trainstone
