#include "report/commbench_section.hpp"

#include "core/plural.hpp"
#include "report/commbench_table.hpp"
#include "report/plot.hpp"
#include "report/report_text.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace trainstone {

namespace {

constexpr std::size_t most_with_predictions = 8; // of more algorithms nobody could tell the lines apart
constexpr double giga = 1e9;                     // as nccl-tests counts

/// Rows of one collective and type, in the order of the file.
struct CollectiveRows {
  std::string collective, type;
  std::vector<CommbenchFileRow const*> rows;

  std::string name() const { return collective + ", " + type; }
};

std::vector<CollectiveRows> parts_of(CommbenchFile const& file) {
  std::vector<CollectiveRows> parts;
  for (CommbenchFileRow const& row : file.rows) {
    auto const found = std::ranges::find_if(
        parts, [&](CollectiveRows const& part) { return part.collective == row.collective && part.type == row.type; });
    if (found != parts.end())
      found->rows.push_back(&row);
    else
      parts.push_back({row.collective, row.type, {&row}});
  }
  return parts;
}

/// One series per algorithm; MPI's black.
template <class Value>
std::vector<Series> series_of(CollectiveRows const& part, Value const& value) {
  std::vector<Series> all;
  int next = 0;
  for (CommbenchFileRow const* row : part.rows) {
    std::optional<double> const shown = value(*row);
    if (!shown || !(*shown > 0) || row->bytes == 0) continue;
    auto found = std::ranges::find(all, row->algorithm, &Series::name);
    if (found == all.end()) {
      if (next == reference_look) ++next;
      all.push_back({.name = row->algorithm,
                     .drawn = Drawn::line_and_points,
                     .look = row->algorithm == "mpi" ? reference_look : next++});
      found = std::prev(all.end());
    }
    found->x.push_back(static_cast<double>(row->bytes));
    found->y.push_back(*shown);
  }
  return all;
}

std::string figure_name(NamedCommbench const& named, CollectiveRows const& part) {
  return fmt::format("{}-{}-{}", named.name, file_name_of(part.collective), file_name_of(part.type));
}

Figure rate_figure(NamedCommbench const& named, CollectiveRows const& part) {
  Plot const plot{.title = fmt::format("Bus bandwidth by size, {}, {}", part.name(), plural(named.file.ranks, "rank")),
                  .x = {.label = "size", .scale = Scale::log, .base = 2, .tick_label = bytes_text},
                  .y = {.label = "busbw (GB/s)", .scale = Scale::log},
                  .series = series_of(part, [](CommbenchFileRow const& row) {
                    return row.bus_rate ? std::optional(*row.bus_rate / giga) : std::nullopt;
                  })};
  return {
      figure_name(named, part) + "-rates", plot_svg(plot),
      "Medians; busbw as nccl-tests defines it: what the busiest link carries. mpi is MPI's own collective, measured "
      "interleaved with the others."};
}

Figure time_figure(NamedCommbench const& named, CollectiveRows const& part) {
  std::vector<Series> series = series_of(
      part, [](CommbenchFileRow const& row) { return row.seconds ? std::optional(*row.seconds * 1e6) : row.seconds; });
  bool const predictions = series.size() <= most_with_predictions;
  for (Series predicted : series_of(part, [](CommbenchFileRow const& row) {
         return row.predicted_seconds ? std::optional(*row.predicted_seconds * 1e6) : row.predicted_seconds;
       })) {
    auto const its_own = std::ranges::find(series, predicted.name, &Series::name);
    if (!predictions || its_own == series.end() || predicted.name == "auto") continue;
    predicted.look = its_own->look;
    predicted.drawn = Drawn::dashes;
    predicted.name += ", predicted";
    series.push_back(std::move(predicted));
  }
  Plot const plot{.title = fmt::format("Time by size, {}, {}", part.name(), plural(named.file.ranks, "rank")),
                  .x = {.label = "size", .scale = Scale::log, .base = 2, .tick_label = bytes_text},
                  .y = {.label = "time of a call (us)", .scale = Scale::log},
                  .series = std::move(series)};
  return {figure_name(named, part) + "-times", plot_svg(plot),
          predictions
              ? "Medians of the slowest rank; predicted: the schedule's price on " + named.file.predictions + "."
              : "Medians of the slowest rank."};
}

/// The rows of one size that have a time.
struct RowsOfSize {
  CommbenchFileRow const* fastest = nullptr; ///< of ours
  CommbenchFileRow const* chosen = nullptr;  ///< auto
  std::map<std::string, CommbenchFileRow const*> libraries;

  explicit RowsOfSize(std::vector<CommbenchFileRow const*> const& rows) {
    for (CommbenchFileRow const* row : rows) {
      if (!row->seconds) continue;
      if (is_of_library(row->algorithm))
        libraries[row->algorithm] = row;
      else if (row->algorithm == "auto")
        chosen = row;
      else if (!fastest || *row->seconds < *fastest->seconds)
        fastest = row;
    }
  }
};

/// Per size the fastest of ours, auto and the libraries that were measured: MPI's collective, or none, is always shown.
Table fastest_table(CollectiveRows const& part) {
  std::map<std::uint64_t, std::vector<CommbenchFileRow const*>> by_size;
  std::set<std::string> libraries{"mpi"};
  for (CommbenchFileRow const* row : part.rows) {
    by_size[row->bytes].push_back(row);
    if (is_of_library(row->algorithm)) libraries.insert(row->algorithm);
  }
  Table table{{"size", "fastest of ours", "its time", "its busbw, GB/s", "auto picks", "its time"}, {}};
  for (std::string const& library : libraries) {
    table.columns.push_back(library);
    table.columns.push_back(library + " / fastest");
  }
  auto const time_of = [](CommbenchFileRow const* row) { return row ? seconds_text(*row->seconds) : std::string(); };
  for (auto const& [bytes, rows] : by_size) {
    auto [fastest, chosen, measured] = RowsOfSize(rows);
    std::vector<Cell>& cells = table.rows.emplace_back();
    cells = {fmt::format("{} B", bytes),
             fastest ? fastest->algorithm : "",
             time_of(fastest),
             fastest && fastest->bus_rate ? fmt::format("{:.4g}", *fastest->bus_rate / giga) : "",
             chosen ? chosen->picked : "",
             time_of(chosen)};
    for (std::string const& library : libraries) {
      CommbenchFileRow const* const row = measured[library];
      cells.emplace_back(time_of(row));
      cells.emplace_back(fastest && row ? fmt::format("{:.2f}", *row->seconds / *fastest->seconds) : "");
    }
  }
  return table;
}

void append_wrong(Page& page, CommbenchFile const& file) {
  if (file.right) {
    page.emplace_back(Line{"RIGHT: every result that was checked is exact.", Tone::good});
    return;
  }
  page.emplace_back(Line{"WRONG: these results are not exact; they have no time and are in no plot.", Tone::bad});
  Table table{{"collective", "type", "algorithm", "size", "wrong elements"}, {}};
  for (CommbenchFileRow const& row : file.rows)
    if (row.is_wrong())
      table.rows.push_back({row.collective, row.type, Cell(row.algorithm, Tone::bad), fmt::format("{} B", row.bytes),
                            Cell(fmt::format("{}", *row.wrong), Tone::bad)});
  page.emplace_back(std::move(table));
}

} // namespace

Page commbench_section(NamedCommbench const& named) {
  CommbenchFile const& file = named.file;
  std::string const where = fmt::format("{} on {}", plural(file.ranks, "rank"),
                                        plural(file.nodes, file.emulated_nodes ? "emulated node" : "node"));
  Page page{Heading{2, fmt::format("Collectives {}: {}", named.name, where)}};
  append_wrong(page, file);
  if (!file.finished)
    page.emplace_back(
        Line{"UNFINISHED: the measurement was cut off; what follows is what it had until then.", Tone::notice});
  Table table{{"", ""}, {}};
  table.rows = {{"file", file.path},
                {"code", "trainstone " + file.version},
                {"MPI", file.mpi + ", buffers " + file.buffers},
                {"Kokkos", file.kokkos},
                {"processor", file.cpu},
                {"predictions", file.predictions},
                {"timing", file.timing}};
  page.emplace_back(std::move(table));
  for (CollectiveRows const& part : parts_of(file)) {
    page.emplace_back(Heading{3, part.name()});
    bool const has_rate = std::ranges::any_of(
        part.rows, [](CommbenchFileRow const* row) { return row->bytes > 0 && row->bus_rate && *row->bus_rate > 0; });
    if (has_rate) {
      page.emplace_back(rate_figure(named, part));
      page.emplace_back(time_figure(named, part));
    }
    page.emplace_back(fastest_table(part));
  }
  return page;
}

} // namespace trainstone
