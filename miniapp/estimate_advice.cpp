// trainstone estimate --advise: which of all ways to run a deck on N ranks is the fastest that fits.

#include "commands.hpp"

#include "advice/advice_text.hpp"
#include "advice_runs.hpp"
#include "core/atomic_file.hpp"
#include "core/plural.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

constexpr std::int64_t most_ranks = std::int64_t{1} << 20;

DeckOnRanks asked_of(EstimateOptions const& options) {
  TRAINSTONE_REQUIRE_INPUT(options.ranks, "--advise needs --ranks N: the number of ranks to use");
  std::int64_t const ranks = *options.ranks;
  TRAINSTONE_REQUIRE_INPUT(options.nodes <= ranks, "--nodes {}: there are {} ranks, must be 1 to {}", options.nodes,
                           ranks, ranks);
  TRAINSTONE_REQUIRE_INPUT(options.top >= 1, "--top {}: must be at least 1", options.top);
  TRAINSTONE_REQUIRE_INPUT(options.check == 0 || options.check >= 2,
                           "--check {}: an order needs at least 2 ways that are run", options.check);
  return read_deck_on_ranks(options.common.deck, ranks, options.nodes);
}

/// The deck's parts are measured as it is: on its own mesh. Where that does not go with the ranks, on one that does.
StepMachine machine_of(EstimateOptions const& options, DeckOnRanks const& asked, WayBatch const& batch) {
  std::int64_t const expected = asked.deck().config.comm.expected_ranks;
  try {
    return read_step_machine(options.machine_file,
                             expected == 0 ? asked : asked.with({fmt::format("comm.expected_ranks={}", asked.ranks)}));
  } catch (InputError const&) {
    std::vector<Way> const all = meshes(asked.deck().config, batch, asked.ranks);
    if (all.empty()) throw;
    return read_step_machine(options.machine_file, on_way(asked, asked.deck(), all.front(), batch));
  }
}

RankedOrder run_check(EstimateOptions const& options, std::vector<RankedWay> const& ranked) {
  std::vector<RankedWay> ways;
  for (std::size_t const number : spread_choices(ranked, static_cast<std::size_t>(options.check)))
    ways.push_back(ranked[number]);
  TRAINSTONE_REQUIRE_INPUT(ways.size() >= 2, "--check: {} way fits, and an order needs at least 2", ways.size());
  std::vector<double> const seconds = measured_steps(options, ways);
  std::vector<CheckedWay> checked;
  for (std::size_t i = 0; i < ways.size(); ++i) checked.push_back({ways[i], seconds[i]});
  return check_order(std::move(checked));
}

} // namespace

int estimate_advice(EstimateOptions const& options) {
  AdviceReport report;
  report.ranks = options.ranks.value_or(0);
  report.nodes = options.nodes;
  report.memory = options.device_memory;
  AdviceRequest request{.asked = asked_of(options), .memory = options.device_memory};
  request.listed = std::max(request.listed, static_cast<std::size_t>(options.top));
  request.played =
      std::max({request.played, static_cast<std::size_t>(options.top), static_cast<std::size_t>(options.check)});
  report.deck = deck_label(request.asked.deck());
  WayBatch const batch = batch_of_ways(request.asked);
  StepMachine const machine = machine_of(options, request.asked, batch);
  fmt::print("advice for deck {} on {}, {}\n{}", report.deck, plural(report.ranks, "rank"),
             plural(report.nodes, "node"), machine.description);
  if (report.memory) {
    report.rule = apply_rule(request.asked, batch, *report.memory);
    fmt::print("{}", rule_text(*report.rule, *report.memory));
  }
  report.own = own_way(request.asked);
  report.model = request.asked.deck().config.model;
  report.advice = find_ways(request, machine);
  if (report.advice.ranked.empty()) report.ranks_needed = ranks_that_fit(request, most_ranks);
  fmt::print("{}", advice_text(report, static_cast<std::size_t>(options.top)));
  if (options.check > 0 && !report.advice.ranked.empty()) {
    report.check = run_check(options, report.advice.ranked);
    fmt::print("{}", order_check_text(*report.check));
  }
  if (!options.json_file.empty()) write_file_in_folder(options.json_file, advice_json(report));
  if (report.advice.ranked.empty()) return static_cast<int>(ExitCode::does_not_fit);
  if (report.check && !report.check->passes()) return static_cast<int>(ExitCode::verification_failed);
  return 0;
}

} // namespace trainstone
