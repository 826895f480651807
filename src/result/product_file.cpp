#include "result/product_file.hpp"

#include "result/json_file.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

constexpr int schema_version = 1;

ProductFileRow read_row(JsonFile const& file, std::string const& place, std::int64_t ranks) {
  ProductFileRow row{.algorithm = file.text(place + "algorithm"),
                     .grid = file.counts(place + "grid"),
                     .messages = file.amount(place + "counted/messages"),
                     .sent = file.amount(place + "counted/sent_bytes"),
                     .kept = file.amount(place + "counted/kept_bytes"),
                     .predicted_messages = file.amount(place + "predicted/messages"),
                     .predicted_sent = file.amount(place + "predicted/sent_bytes"),
                     .predicted_kept = file.amount(place + "predicted/kept_bytes"),
                     .bound = file.non_negative(place + "bound_bytes"),
                     .right = file.amount(place + "wrong") == 0 && file.amount(place + "unlike_ranks") == 0};
  file.require(row.grid.size() == 3 && row.grid[0] * row.grid[1] * row.grid[2] == ranks,
               fmt::format("{}grid must have three extents whose product is /header/ranks, {}", place, ranks));
  if (file.has(place + "seconds")) row.seconds = file.positive(place + "seconds/p50");
  row.predicted_seconds = file.optional_non_negative(place + "predicted_seconds");
  row.flops_per_second = file.optional_non_negative(place + "flops_per_second");
  file.require(row.right || !row.seconds, place + "seconds must be null: the row is wrong");
  file.require(row.seconds.has_value() == row.flops_per_second.has_value(),
               place + "flops_per_second and seconds belong together");
  return row;
}

} // namespace

ProductFile read_product(JsonFile const& file) {
  file.require_version(schema_version);
  std::string const header = "/header/";
  ProductFile read{.path = file.path(),
                   .version = file.text(header + "version"),
                   .cpu = file.text(header + "cpu"),
                   .machine = file.text(header + "machine"),
                   .type = file.text(header + "type"),
                   .gemm = file.text(header + "gemm"),
                   .ranks = file.count(header + "ranks"),
                   .nodes = file.count(header + "nodes"),
                   .emulated_nodes = file.boolean(header + "emulated_nodes"),
                   .m = file.count(header + "m"),
                   .n = file.count(header + "n"),
                   .k = file.count(header + "k"),
                   .rows = {}};
  for (std::size_t i = 0; i < file.length("/rows"); ++i)
    read.rows.push_back(read_row(file, fmt::format("/rows/{}/", i), read.ranks));
  file.require(!read.rows.empty(), "/rows must have at least one row");
  bool const right = std::ranges::all_of(read.rows, &ProductFileRow::right);
  file.require(file.text("/status") == (right ? "RIGHT" : "WRONG"), "/status is not that of the rows");
  return read;
}

} // namespace trainstone
