#include "advice/sweep.hpp"

#include "core/error.hpp"
#include "report/output.hpp"
#include "train/plan/extreme_plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace trainstone {

namespace {

constexpr std::int64_t most_ranks = std::int64_t{1} << 20;

std::int64_t number_of(std::string_view text) {
  std::int64_t number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

std::vector<std::int64_t> numbers_of_ranks(SweepRange const& range) {
  std::vector<std::int64_t> all;
  for (std::int64_t ranks = range.first; ranks < range.last; ranks *= 2) all.push_back(ranks);
  all.push_back(range.last);
  return all;
}

/// A number of ranks that the deck expects is not the row's.
std::vector<std::string> keys_of_row(DeckOnRanks const& asked, BatchConfig const& batch, std::int64_t ranks,
                                     Scaling scaling) {
  Deck const deck = asked.deck();
  std::vector<std::string> keys;
  if (std::int64_t const expected = deck.config.comm.expected_ranks; expected != 0 && expected != ranks)
    keys.push_back(fmt::format("comm.expected_ranks={}", ranks));
  if (scaling == Scaling::strong) return keys;
  std::int64_t const data = mesh_of(deck.config.parallel, ranks).data();
  keys.push_back(fmt::format("batch.micro={}", batch.micro));
  keys.push_back(fmt::format("batch.global={}", batch.micro * batch.accumulation * data));
  return keys;
}

SweepRow row_of(DeckOnRanks const& asked, StepMachine const& machine) {
  ResolvedRun const run = planned_run(asked);
  SweepRow row{.ranks = asked.ranks, .nodes = asked.nodes, .mesh = run.mesh, .keys = {}, .sent = {}};
  row.samples = run.config.batch.global;
  ExtremePlans const extremes = plan_extreme_traffic(run);
  row.needed = extremes.largest.kernel_memory();
  row.sent = extremes.busiest.step_sent() + extremes.busiest.step_control();
  row.seconds = price_step(run, machine).step;
  return row;
}

double rate(SweepRow const& row) {
  return static_cast<double>(row.samples) / (row.seconds * static_cast<double>(row.ranks));
}

} // namespace

SweepRange read_sweep_range(std::string const& text) {
  std::string_view const name = "ranks=";
  std::size_t const dots = text.find("..");
  SweepRange range{0, 0};
  if (text.starts_with(name) && dots != std::string::npos)
    range = {number_of(std::string_view(text).substr(name.size(), dots - name.size())),
             number_of(std::string_view(text).substr(dots + 2))};
  TRAINSTONE_REQUIRE_INPUT(1 <= range.first && range.first <= range.last && range.last <= most_ranks,
                           "--sweep {}: must be ranks=FIRST..LAST with 1 <= FIRST <= LAST <= {}, like ranks=8..65536",
                           text, most_ranks);
  return range;
}

std::vector<SweepRow> sweep(DeckOnRanks const& asked, SweepRange const& range, Scaling scaling,
                            StepMachine const& machine) {
  DeckOnRanks first = asked.with({fmt::format("comm.expected_ranks={}", range.first)});
  first.ranks = range.first;
  BatchConfig const batch = resolve(first.deck(), first.ranks).batch;
  std::int64_t const per_node = std::max<std::int64_t>(1, range.first / asked.nodes);
  std::vector<SweepRow> rows;
  for (std::int64_t const ranks : numbers_of_ranks(range)) {
    DeckOnRanks on = asked;
    on.ranks = ranks;
    on.nodes = asked.nodes == 1 || ranks == range.first ? asked.nodes : (ranks + per_node - 1) / per_node;
    std::vector<std::string> const keys = keys_of_row(asked, batch, ranks, scaling);
    SweepRow& row = rows.emplace_back(row_of(on.with(keys), machine));
    row.keys = keys;
    row.efficiency = rate(row) / rate(rows.front());
  }
  return rows;
}

std::string sweep_text(std::vector<SweepRow> const& rows) {
  std::string text =
      fmt::format("{:>8} {:>7} {:>16} {:>8} {:>13} {:>15} {:>9} {:>11} {:>10}\n", "ranks", "nodes", "tensor x data x",
                  "samples", "memory", "bytes sent", "messages", "step", "efficiency");
  text += fmt::format("{:>8} {:>7} {:>16} {:>8} {:>13} {:>15} {:>9} {:>11} {:>10}\n", "", "", "pipeline", "per step",
                      "per rank", "per rank", "per rank", "predicted", "");
  for (SweepRow const& row : rows)
    text += fmt::format("{:>8} {:>7} {:>16} {:>8} {:>13} {:>15} {:>9} {:>9.4g} s {:>10.3f}\n", row.ranks, row.nodes,
                        fmt::format("{} x {} x {}", row.mesh.tensor, row.mesh.data(), row.mesh.pipeline), row.samples,
                        mebibytes(row.needed), row.sent.bytes, row.sent.messages, row.seconds, row.efficiency);
  return text;
}

} // namespace trainstone
