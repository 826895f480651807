// trainstone explain of a strategy: what every rank holds at every moment of a training step, its predicted timeline,
// or the order of transfers of parameter servers.

#include "commbench.hpp"
#include "core/atomic_file.hpp"
#include "core/plural.hpp"
#include "deck/schema.hpp"
#include "deck/unread_keys.hpp"
#include "explain.hpp"
#include "lectures/lecture_servers.hpp"
#include "parallel/plan/parallel_problems.hpp"
#include "parallel/program/step_walk.hpp"
#include "report/machine_source.hpp"
#include "report/predicted_step.hpp"
#include "report/strategy_svg.hpp"
#include "report/strategy_text.hpp"
#include "report/timeline_text.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

namespace trainstone {

namespace {

constexpr std::int64_t most_ranks_of_timelines = std::int64_t{1} << 20; // the output shows one rank of each class
constexpr std::int64_t most_layers = 64;                                // more than this nobody reads

/// A GPT so small that its numbers can be followed.
GptConfig small_model(ExplainArguments const& arguments) {
  std::string const& layers = arguments.layers;
  return {.layers = layers.empty() ? 2 : parse_count("--layers", layers, 1, most_layers),
          .heads = 1,
          .channels = 8,
          .context = 8,
          .vocab = 16};
}

// Named, because nvcc puts parentheses around a field's declarator, and g++ warns of them.
using TextArgument = std::string ExplainArguments::*;

/// A flag that stands for a key of a deck.
struct KeyFlag {
  char const* flag;
  char const* key;
  TextArgument value;
};
constexpr std::array key_flags{
    KeyFlag{"--partition", "parallel.partition", &ExplainArguments::partition},
    KeyFlag{"--gradient-reduction", "parallel.gradient_reduction", &ExplainArguments::gradient_reduction},
    KeyFlag{"--granularity", "parallel.granularity", &ExplainArguments::granularity},
    KeyFlag{"--recipe", "precision.recipe", &ExplainArguments::recipe},
};

/// Puts the values of these flags into the configuration, whose strategy is there.
void set_keys(RunConfig& config, ExplainArguments const& arguments) {
  for (auto const& [flag, name, value] : key_flags) {
    std::string const& text = arguments.*value;
    if (text.empty()) continue;
    Key const& key = *find_key(name);
    if (auto const problem = find_problem(key, text)) throw InputError(fmt::format("{} {}: {}", flag, text, *problem));
    key.set(config, text);
    if (auto const unread = find_unread(config, name))
      throw InputError(fmt::format("{}: {} has none, it belongs to {}", flag, arguments.subject, unread->readers));
  }
}

/// "zero1, partition inter_layer"
std::string title_of(ExplainArguments const& arguments) {
  std::string title = arguments.subject;
  for (KeyFlag const& one : key_flags)
    if (!(arguments.*one.value).empty()) title += fmt::format(", {} {}", one.flag + 2, arguments.*one.value);
  return title;
}

void require_strategy_alone(ExplainArguments const& arguments) {
  require_not_given({{"ALGORITHM", arguments.algorithm}}, arguments.subject);
  require_not_given(flags_of_collectives(arguments), arguments.subject);
}

StepWalk walk_of(ExplainArguments const& arguments, NamedStrategy const& strategy) {
  require_strategy_alone(arguments);
  Rank const ranks = ranks_of(arguments, 1, most_explained_ranks);
  auto const nodes = static_cast<int>(nodes_of(arguments, ranks));
  RunConfig config;
  ParallelConfig& parallel = config.parallel;
  parallel.strategy = strategy.strategy;
  parallel.zero_stage = strategy.zero_stage;
  StateSharers const sharers = strategy.row().sharers;
  bool const hybrid = sharers == StateSharers::group, gathers = sharers != StateSharers::none;
  if (!hybrid) require_not_given({{"--shard-group", arguments.shard_group}}, arguments.subject);
  if (sharers != StateSharers::servers) require_not_given({{"--servers", arguments.servers}}, arguments.subject);
  if (!arguments.servers.empty())
    parallel.servers = parse_count("--servers", arguments.servers, 1, most_explained_ranks);
  if (auto const problem = find_servers_problem(parallel, ranks))
    throw InputError(fmt::format("{} on {}: {}", arguments.subject, plural(ranks, "rank"), problem->message));
  if (!gathers) require_not_given({{"--prefetch", arguments.prefetch}}, arguments.subject);
  if (!gathers || sharers == StateSharers::servers) require_not_given({{"--unit", arguments.unit}}, arguments.subject);
  if (hybrid) {
    TRAINSTONE_REQUIRE_INPUT(!arguments.shard_group.empty(), "{} needs --shard-group, a divisor of {} ranks",
                             arguments.subject, ranks);
    parallel.shard_group = parse_count("--shard-group", arguments.shard_group, 1, ranks);
  }
  if (!arguments.prefetch.empty()) parallel.prefetch = parse_count("--prefetch", arguments.prefetch, 0, 63);
  GptConfig const model = small_model(arguments);
  if (!arguments.unit.empty()) parallel.unit = parse_count("--unit", arguments.unit, 1, model.layers);
  set_keys(config, arguments);
  if (auto const problem = find_parallel_problem(parallel, config.comm, ranks, 1))
    throw InputError(fmt::format("{} on {}: {}", arguments.subject, plural(ranks, "rank"), problem->message));
  ParameterTable const table(model, mesh_of(parallel, ranks).parts(), {}, parallel.unit);
  return walk_step(parallel, config.comm, table, Topology::block(ranks, nodes), config.precision);
}

/// The deck with this strategy.
Deck deck_with(ExplainArguments const& arguments, NamedStrategy const& strategy) {
  DeckInput input = arguments.deck;
  auto const set = [&](char const* key, std::string const& value) {
    input.overrides.push_back(fmt::format("parallel.{}={}", key, value));
  };
  set("strategy", std::string(to_string(strategy.strategy)));
  set("zero_stage", std::to_string(strategy.zero_stage));
  if (strategy.row().sharers != StateSharers::group || !arguments.shard_group.empty())
    set("shard_group", arguments.shard_group.empty() ? "0" : arguments.shard_group);
  if (!arguments.prefetch.empty()) set("prefetch", arguments.prefetch);
  if (!arguments.unit.empty()) set("unit", arguments.unit);
  if (!arguments.servers.empty()) input.overrides.push_back("server.count=" + arguments.servers);
  for (auto const& [flag, key, value] : key_flags)
    if (!(arguments.*value).empty()) input.overrides.push_back(fmt::format("{}=\"{}\"", key, arguments.*value));
  if (!arguments.schedule.empty()) input.overrides.push_back(fmt::format("server.schedule=\"{}\"", arguments.schedule));
  return read_deck(input);
}

/// The timeline of a step of a deck, predicted from measured parts.
int explain_timeline(ExplainArguments const& arguments, NamedStrategy const& strategy) {
  require_strategy_alone(arguments);
  TRAINSTONE_REQUIRE_INPUT(!arguments.deck.path.empty() && !arguments.machine_file.empty(),
                           "a timeline needs --deck and --machine");
  require_not_given({{"--layers", arguments.layers}}, "a timeline of a deck, which has model.layers");
  Rank const ranks = ranks_of(arguments, 1, most_ranks_of_timelines);
  std::int64_t const nodes = nodes_of(arguments, ranks);
  Deck const deck = deck_with(arguments, strategy);
  RunConfig const config = resolve(deck, ranks);
  TRAINSTONE_REQUIRE_INPUT(!is_asynchronous(config.parallel),
                           "server.mode async and bounded have no step of all workers; legal value: sync");
  ResolvedRun const run = resolve_run(config, imagined_topology(config, ranks, nodes));
  auto const [stages, timeline] =
      predicted_step(run, arguments.machine_file, read_machine_file(arguments.machine_file));
  std::optional<MeasuredStep> measured;
  if (!arguments.trace_file.empty()) measured = read_measured_step(arguments.trace_file, timeline, stages);
  std::string const title = fmt::format("{} on {}, {}: a step of {}", arguments.subject, plural(ranks, "rank"),
                                        plural(run.topology.nodes(), "node"), deck_label(deck));
  if (!arguments.svg_file.empty()) {
    require_writable(arguments.svg_file);
    write_file_atomically(arguments.svg_file, timeline_svg(title, timeline, stages, measured));
  }
  fmt::print("{}", timeline_text(title, timeline, stages, measured));
  return 0;
}

/// What a worker's link carries when.
int explain_transfers(ExplainArguments const& arguments) {
  require_strategy_alone(arguments);
  require_not_given({{"--ranks", arguments.ranks},
                     {"--nodes", arguments.nodes},
                     {"--servers", arguments.servers},
                     {"--prefetch", arguments.prefetch},
                     {"--unit", arguments.unit},
                     {"--layers", arguments.layers},
                     {"--svg", arguments.svg_file}},
                    "the example of three layers that --schedule shows without --deck");
  for (KeyFlag const& one : key_flags) require_not_given({{one.flag, arguments.*one.value}}, arguments.subject);
  fmt::print("{}", transfer_orders_text(compare_taught_servers(1)));
  return 0;
}

/// \throws InputError if the strategy has no schedule, or none of this name
void require_schedule(std::string const& schedule, NamedStrategy const& strategy) {
  if (schedule.empty()) return;
  if (strategy.row().sharers != StateSharers::servers)
    require_not_given({{"--schedule", schedule}}, std::string(strategy.name));
  TRAINSTONE_REQUIRE_INPUT(schedule == "fifo" || schedule == "priority",
                           "--schedule {}: parameter servers have the schedules fifo and priority", schedule);
}

} // namespace

int explain_strategy(ExplainArguments const& arguments, NamedStrategy const& strategy) {
  require_schedule(arguments.schedule, strategy);
  if (!arguments.deck.path.empty() || !arguments.machine_file.empty() || !arguments.trace_file.empty())
    return explain_timeline(arguments, strategy);
  if (!arguments.schedule.empty()) return explain_transfers(arguments);
  StepWalk const walk = walk_of(arguments, strategy);
  if (!arguments.svg_file.empty()) {
    require_writable(arguments.svg_file);
    write_file_atomically(arguments.svg_file, strategy_svg(title_of(arguments), walk));
  }
  fmt::print("{}", strategy_text(title_of(arguments), walk));
  return 0;
}

void describe_explain_strategy(CLI::App& command, ExplainArguments& arguments) {
  command.add_option("--layers", arguments.layers, "with a strategy: number of blocks of the model; default 2");
  command.add_option("--unit", arguments.unit,
                     "with zero1, zero2, zero3, hsdp: number of blocks that are gathered together; default 1");
  command.add_option("--partition", arguments.partition,
                     "with zero1, zero2, zero3: intra_layer, or inter_layer: every unit has one owner");
  command.add_option("--gradient-reduction", arguments.gradient_reduction,
                     "with zero1, zero2: reduce_scatter, or all_reduce: all ranks get the sum, as it is often drawn");
  command.add_option("--granularity", arguments.granularity,
                     "with ddp: step, tensor or bucket: the gradients that one reduction takes");
  command.add_option("--recipe", arguments.recipe,
                     "with a strategy: fp32, mixed16, mixed18 or mixed20: types; mixed ones show optimizer state, too");
}

} // namespace trainstone
