// trainstone explain: what every rank holds after every round of a collective, or at every moment of a training step,
// as text and as a picture; and what tensor ranks share, as text. Schedules of pipelines are explained in
// explain_pipeline.cpp.

#include "explain.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/simulation/explanation.hpp"
#include "commbench.hpp"
#include "core/atomic_file.hpp"
#include "core/plural.hpp"
#include "lectures/lecture_servers.hpp"
#include "parallel/pipeline/pipeline_schedules.hpp"
#include "parallel/plan/parallel_problems.hpp"
#include "parallel/plan/strategies.hpp"
#include "parallel/program/step_walk.hpp"
#include "report/explanation_svg.hpp"
#include "report/explanation_text.hpp"
#include "report/machine_source.hpp"
#include "report/predicted_step.hpp"
#include "report/strategy_svg.hpp"
#include "report/strategy_text.hpp"
#include "report/tensor_text.hpp"
#include "report/timeline_text.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace trainstone {

namespace {

// more than this nobody reads
constexpr std::int64_t most_ranks = 64;
constexpr std::int64_t most_ranks_of_timelines = std::int64_t{1} << 20; // the output shows one rank of each class
constexpr std::int64_t most_elements = std::int64_t{1} << 20;

/// The value of a flag that only some collectives have; `otherwise` if it is not given.
std::int64_t count_if_given(std::string const& flag, std::string const& text, bool allowed, Collective collective,
                            std::int64_t least, std::int64_t most, std::int64_t otherwise) {
  if (text.empty()) return otherwise;
  TRAINSTONE_REQUIRE_INPUT(allowed, "{}: {} has none, leave it out", flag, to_string(collective));
  return parse_count(flag, text, least, most);
}

Rank ranks_of(ExplainArguments const& arguments, Index least, Index most) {
  return static_cast<Rank>(parse_count("--ranks", arguments.ranks.empty() ? "4" : arguments.ranks, least, most));
}
std::int64_t nodes_of(ExplainArguments const& arguments, Rank ranks) {
  return parse_count("--nodes", arguments.nodes.empty() ? "1" : arguments.nodes, 1, ranks);
}

Problem problem_of(ExplainArguments const& arguments) {
  Collective const collective = parse_collective(arguments.subject);
  bool const served = has_servers(collective);
  Rank const ranks = ranks_of(arguments, served ? 2 : 1, most_ranks);
  auto const nodes = static_cast<int>(nodes_of(arguments, ranks));
  auto const root =
      static_cast<Rank>(count_if_given("--root", arguments.root, has_root(collective), collective, 0, ranks - 1, 0));
  auto const servers =
      static_cast<Rank>(count_if_given("--servers", arguments.servers, served, collective, 1, ranks - 1, 1));
  Index const segment = count_if_given("--segment", arguments.segment, true, collective, 1, most_elements, 0);
  bool const has_elements = collective != Collective::barrier;
  Index const elements = count_if_given("--elements", arguments.elements, has_elements, collective, 0, most_elements,
                                        has_elements ? 2 * (served ? servers : ranks) : 0);
  Problem problem = even_problem(collective, elements, Topology::block(ranks, nodes), root, servers);
  problem.shared_memory = arguments.shared;
  problem.segment = segment;
  return problem;
}

std::vector<std::string_view> collective_names() {
  std::vector<std::string_view> names;
  for (Collective const collective : collectives) names.push_back(to_string(collective));
  return names;
}

using GivenFlag = std::pair<char const*, std::string>; ///< its value; empty: it was not given

/// Refuses flags that were given and mean nothing here.
void require_not_given(std::vector<GivenFlag> const& flags, std::string const& subject) {
  for (auto const& [flag, value] : flags)
    TRAINSTONE_REQUIRE_INPUT(value.empty(), "{}: {} has none, leave it out", flag, subject);
}

/// Of collectives alone.
std::vector<GivenFlag> flags_of_collectives(ExplainArguments const& arguments) {
  return {{"--elements", arguments.elements},
          {"--root", arguments.root},
          {"--segment", arguments.segment},
          {"--shared", arguments.shared ? "given" : ""}};
}

/// Of strategies alone.
std::vector<GivenFlag> flags_of_strategies(ExplainArguments const& arguments) {
  return {{"--shard-group", arguments.shard_group}, {"--prefetch", arguments.prefetch},
          {"--schedule", arguments.schedule},       {"--deck", arguments.deck.path},
          {"--machine", arguments.machine_file},    {"--trace", arguments.trace_file}};
}

/// Neither a collective nor a strategy.
void require_no_other_flags(ExplainArguments const& arguments, std::vector<GivenFlag> const& more) {
  require_not_given(more, arguments.subject);
  require_not_given({{"--nodes", arguments.nodes}, {"--servers", arguments.servers}}, arguments.subject);
  require_not_given(flags_of_collectives(arguments), arguments.subject);
  require_not_given(flags_of_strategies(arguments), arguments.subject);
}

int explain_tensor(ExplainArguments const& arguments) {
  require_no_other_flags(arguments, {{"ALGORITHM", arguments.algorithm}, {"--svg", arguments.svg_file}});
  Rank const ranks = ranks_of(arguments, 1, most_ranks);
  bool const shared = arguments.sequence && ranks > 1;
  PositionsOfRanks const positions = shared ? PositionsOfRanks::shared : PositionsOfRanks::all;
  fmt::print("{}", tensor_text(tensor_ranks(small_model_of(ranks, positions), ranks, positions)));
  return 0;
}

/// A GPT so small that its numbers can be followed.
constexpr GptConfig small_model{.layers = 2, .heads = 1, .channels = 8, .context = 8, .vocab = 16};

void require_strategy_alone(ExplainArguments const& arguments) {
  require_not_given({{"ALGORITHM", arguments.algorithm}}, arguments.subject);
  require_not_given(flags_of_collectives(arguments), arguments.subject);
}

StepWalk walk_of(ExplainArguments const& arguments, NamedStrategy const& strategy) {
  require_strategy_alone(arguments);
  Rank const ranks = ranks_of(arguments, 1, most_ranks);
  auto const nodes = static_cast<int>(nodes_of(arguments, ranks));
  ParallelConfig parallel{.strategy = strategy.strategy, .zero_stage = strategy.zero_stage};
  StateSharers const sharers = strategy.row().sharers;
  bool const hybrid = sharers == StateSharers::group, gathers = sharers != StateSharers::none;
  if (!hybrid) require_not_given({{"--shard-group", arguments.shard_group}}, arguments.subject);
  if (sharers != StateSharers::servers) require_not_given({{"--servers", arguments.servers}}, arguments.subject);
  if (!arguments.servers.empty()) parallel.servers = parse_count("--servers", arguments.servers, 1, most_ranks);
  if (auto const problem = find_servers_problem(parallel, ranks))
    throw InputError(fmt::format("{} on {}: {}", arguments.subject, plural(ranks, "rank"), problem->message));
  if (!gathers) require_not_given({{"--prefetch", arguments.prefetch}}, arguments.subject);
  if (hybrid) {
    TRAINSTONE_REQUIRE_INPUT(!arguments.shard_group.empty(), "{} needs --shard-group, a divisor of {} ranks",
                             arguments.subject, ranks);
    parallel.shard_group = parse_count("--shard-group", arguments.shard_group, 1, ranks);
  }
  if (!arguments.prefetch.empty()) parallel.prefetch = parse_count("--prefetch", arguments.prefetch, 0, 63);
  return walk_step(parallel, {}, ParameterTable(small_model, mesh_of(parallel, ranks).parts()),
                   Topology::block(ranks, nodes));
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
  if (!arguments.servers.empty()) input.overrides.push_back("server.count=" + arguments.servers);
  if (!arguments.schedule.empty()) input.overrides.push_back(fmt::format("server.schedule=\"{}\"", arguments.schedule));
  return read_deck(input);
}

/// The timeline of a step of a deck, predicted from measured parts.
int explain_timeline(ExplainArguments const& arguments, NamedStrategy const& strategy) {
  require_strategy_alone(arguments);
  TRAINSTONE_REQUIRE_INPUT(!arguments.deck.path.empty() && !arguments.machine_file.empty(),
                           "a timeline needs --deck and --machine");
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
                     {"--svg", arguments.svg_file}},
                    "the example of three layers that --schedule shows without --deck");
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

int explain_strategy(ExplainArguments const& arguments, NamedStrategy const& strategy) {
  if (!arguments.schedule.empty()) return explain_transfers(arguments);
  StepWalk const walk = walk_of(arguments, strategy);
  if (!arguments.svg_file.empty()) {
    require_writable(arguments.svg_file);
    write_file_atomically(arguments.svg_file, strategy_svg(arguments.subject, walk));
  }
  fmt::print("{}", strategy_text(arguments.subject, walk));
  return 0;
}

} // namespace

void describe_explain(CLI::App& command, ExplainArguments& arguments) {
  command
      .add_option("SUBJECT", arguments.subject,
                  fmt::format("a collective (all_reduce, broadcast, ...), a strategy ({}), \"{}\" or \"{}\"",
                              strategy_names(), pipeline_subject, tensor_subject))
      ->required();
  command.add_option("ALGORITHM", arguments.algorithm,
                     fmt::format("algorithm of the collective: ring, tree, ...; schedule of the pipeline: {}",
                                 pipeline_schedule_names()));
  command.add_option("--ranks", arguments.ranks, "number of ranks")->default_str("4");
  command.add_option("--nodes", arguments.nodes, "number of nodes; ranks sit on them in blocks")->default_str("1");
  command.add_option("--elements", arguments.elements, "number of elements; default two per block");
  command.add_option("--root", arguments.root, "root of broadcast, reduce, gather, scatter; default 0");
  command.add_option("--servers", arguments.servers, "of parameter servers: number of ranks that serve; default 1");
  command.add_option("--segment", arguments.segment,
                     "elements per message of segmented algorithms; default: each algorithm's own");
  command.add_flag("--sequence", arguments.sequence,
                   "with tensor: outside of products the ranks share the positions, too");
  command.add_flag("--shared", arguments.shared, "put buffers into memory that all ranks of a node share");
  command.add_option("--shard-group", arguments.shard_group, "with hsdp: number of ranks that hold one copy together");
  command.add_option(
      "--schedule", arguments.schedule,
      "with parameter_server: fifo or priority; shows both orders of three layers on a worker's link, or, "
      "with --deck, the deck's step in this order");
  command.add_option("--prefetch", arguments.prefetch,
                     "with a strategy: number of units that are gathered ahead; default 1");
  CLI::Option* const deck = command.add_option(
      "--deck", arguments.deck.path,
      "with a strategy and --machine: print the predicted timeline of a step of this deck under the strategy");
  command.add_option("--set", arguments.deck.overrides, "override a key of the deck: section.key=value")
      ->take_all()
      ->allow_extra_args(false)
      ->needs(deck);
  command.add_option("--machine", arguments.machine_file, "peaks.json of calibrate --deck, for a timeline");
  command.add_option("--trace", arguments.trace_file,
                     "trace.file of a run of the deck: show its step of median length beside the timeline");
  describe_explain_pipeline(command, arguments.pipeline);
  command.add_option("--svg", arguments.svg_file, "also write a picture to this file");
}

int explain(ExplainArguments const& arguments) {
  if (arguments.subject == pipeline_subject) {
    require_no_other_flags(arguments,
                           {{"--ranks", arguments.ranks}, {"--sequence", arguments.sequence ? "given" : ""}});
    return explain_pipeline(arguments);
  }
  require_not_given({pipeline_flag_given(arguments.pipeline)}, arguments.subject);
  if (arguments.subject == tensor_subject) return explain_tensor(arguments);
  require_not_given({{"--sequence", arguments.sequence ? "given" : ""}}, arguments.subject);
  bool const is_timed =
      !arguments.deck.path.empty() || !arguments.machine_file.empty() || !arguments.trace_file.empty();
  if (NamedStrategy const* const strategy = find_strategy(arguments.subject)) {
    require_schedule(arguments.schedule, *strategy);
    return is_timed ? explain_timeline(arguments, *strategy) : explain_strategy(arguments, *strategy);
  }
  require_not_given(flags_of_strategies(arguments), arguments.subject);
  std::vector<std::string_view> const known = collective_names();
  TRAINSTONE_REQUIRE_INPUT(std::ranges::find(known, arguments.subject) != known.end(),
                           "\"{}\" is no collective and no strategy, must be one of {}; or {}; or {}; or {}",
                           arguments.subject, fmt::join(known, ", "), strategy_names(), pipeline_subject,
                           tensor_subject);
  Problem const problem = problem_of(arguments);
  Algorithm const algorithm = parse_algorithm(problem.collective, arguments.algorithm);
  std::string const reason = refusal(problem, algorithm);
  bool const shared_would_do = problem.topology.nodes() == 1 && !problem.shared_memory;
  TRAINSTONE_REQUIRE_INPUT(reason.empty(), "{}{}", reason, shared_would_do ? ": add --shared" : "");
  if (!arguments.svg_file.empty()) require_writable(arguments.svg_file);
  Explanation const explanation = explain(problem, algorithm);
  if (!arguments.svg_file.empty()) write_file_atomically(arguments.svg_file, explanation_svg(explanation));
  fmt::print("{}", explanation_text(explanation));
  return 0;
}

} // namespace trainstone
