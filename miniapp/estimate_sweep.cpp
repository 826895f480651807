// trainstone estimate --sweep: a row for every number of ranks.

#include "commands.hpp"

#include "advice/sweep.hpp"
#include "core/atomic_file.hpp"
#include "core/json_text.hpp"

#include <fmt/format.h>

#include <sstream>

namespace trainstone {

namespace {

nlohmann::ordered_json json_of(SweepRow const& row) {
  return {{"ranks", row.ranks},
          {"nodes", row.nodes},
          {"tensor", row.mesh.tensor},
          {"data", row.mesh.data()},
          {"pipeline", row.mesh.pipeline},
          {"set", row.keys},
          {"samples_per_step", row.samples},
          {"needed_bytes", row.needed},
          {"sent_bytes", row.sent.bytes},
          {"messages", row.sent.messages},
          {"step_seconds", row.seconds},
          {"efficiency", row.efficiency}};
}

/// Lines with their ends as one.
std::string one_line(std::string const& lines) {
  std::istringstream words(lines);
  std::string text;
  for (std::string word; words >> word;) text += (text.empty() ? "" : " ") + word;
  return text;
}

} // namespace

int estimate_sweep(EstimateOptions const& options) {
  TRAINSTONE_REQUIRE_INPUT(!options.ranks, "--sweep names the ranks: leave out --ranks");
  SweepRange const range = read_sweep_range(options.sweep);
  TRAINSTONE_REQUIRE_INPUT(options.nodes <= range.first, "--nodes {}: the first row has {} ranks, must be 1 to {}",
                           options.nodes, range.first, range.first);
  Scaling const scaling = options.strong ? Scaling::strong : Scaling::weak;
  DeckOnRanks const asked = read_deck_on_ranks(options.common.deck, range.first, options.nodes);
  DeckOnRanks const first = asked.with({fmt::format("comm.expected_ranks={}", range.first)});
  StepMachine const machine = read_step_machine(options.machine_file, first);
  fmt::print("deck {}: {} scaling, memory of the rank that needs most, traffic of the rank that sends most\n{}",
             deck_label(asked.deck()), options.strong ? "strong" : "weak", machine.description);
  std::vector<SweepRow> const rows = sweep(asked, range, scaling, machine);
  fmt::print("{}", sweep_text(rows));
  if (options.json_file.empty()) return 0;
  nlohmann::ordered_json json{{"schema_version", 1},
                              {"kind", "sweep"},
                              {"deck", deck_label(asked.deck())},
                              {"scaling", options.strong ? "strong" : "weak"},
                              {"machine", one_line(machine.description)}};
  for (SweepRow const& row : rows) json["rows"].push_back(json_of(row));
  write_file_in_folder(options.json_file, json_text(json));
  return 0;
}

} // namespace trainstone
