// trainstone explain: what every rank holds after every round of a collective, as text and as a picture; and what
// tensor ranks share, as text. Strategies are explained in explain_strategy.cpp, schedules of pipelines in
// explain_pipeline.cpp, distributed products in explain_product.cpp.

#include "explain.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/simulation/explanation.hpp"
#include "commbench.hpp"
#include "core/atomic_file.hpp"
#include "core/plural.hpp"
#include "parallel/pipeline/pipeline_schedules.hpp"
#include "parallel/plan/strategies.hpp"
#include "products/plan/product_choice.hpp"
#include "report/explanation_svg.hpp"
#include "report/explanation_text.hpp"
#include "report/tensor_text.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace trainstone {

Rank ranks_of(ExplainArguments const& arguments, Index least, Index most) {
  return static_cast<Rank>(parse_count("--ranks", arguments.ranks.empty() ? "4" : arguments.ranks, least, most));
}

std::int64_t nodes_of(ExplainArguments const& arguments, Rank ranks) {
  return parse_count("--nodes", arguments.nodes.empty() ? "1" : arguments.nodes, 1, ranks);
}

void require_not_given(std::vector<GivenFlag> const& flags, std::string const& subject) {
  for (auto const& [flag, value] : flags)
    TRAINSTONE_REQUIRE_INPUT(value.empty(), "{}: {} has none, leave it out", flag, subject);
}

std::vector<GivenFlag> flags_of_collectives(ExplainArguments const& arguments) {
  return {{"--elements", arguments.elements},
          {"--root", arguments.root},
          {"--segment", arguments.segment},
          {"--shared", arguments.shared ? "given" : ""}};
}

namespace {

constexpr std::int64_t most_elements = std::int64_t{1} << 20;

/// The value of a flag that only some collectives have; `otherwise` if it is not given.
std::int64_t count_if_given(std::string const& flag, std::string const& text, bool allowed, Collective collective,
                            std::int64_t least, std::int64_t most, std::int64_t otherwise) {
  if (text.empty()) return otherwise;
  TRAINSTONE_REQUIRE_INPUT(allowed, "{}: {} has none, leave it out", flag, to_string(collective));
  return parse_count(flag, text, least, most);
}

Problem problem_of(ExplainArguments const& arguments) {
  Collective const collective = parse_collective(arguments.subject);
  bool const served = has_servers(collective);
  Rank const ranks = ranks_of(arguments, served ? 2 : 1, most_explained_ranks);
  auto const nodes = static_cast<int>(nodes_of(arguments, ranks));
  auto const root =
      static_cast<Rank>(count_if_given("--root", arguments.root, has_root(collective), collective, 0, ranks - 1, 0));
  auto const servers =
      static_cast<Rank>(count_if_given("--servers", arguments.servers, served, collective, 1, ranks - 1, 1));
  Index const segment = count_if_given("--segment", arguments.segment, true, collective, 1, most_elements, 0);
  bool const has_elements = has_data(collective);
  Index const elements = count_if_given("--elements", arguments.elements, has_elements, collective, 0, most_elements,
                                        has_elements ? 2 * (served ? servers : ranks) : 0);
  Problem problem = even_problem(collective, elements, Topology::block(ranks, nodes), root, servers);
  problem.shared_memory = arguments.shared;
  problem.segment = segment;
  return problem;
}

/// Need not be given where there is one alone.
Algorithm algorithm_of(Collective collective, std::string const& name) {
  std::vector<Algorithm> const all = algorithms_of(collective);
  if (!name.empty()) return parse_algorithm(collective, name);
  if (all.size() == 1) return all.front();
  std::vector<std::string_view> names;
  for (Algorithm const algorithm : all) names.push_back(to_string(algorithm));
  throw InputError(
      fmt::format("explain {} needs an ALGORITHM, one of {}", to_string(collective), fmt::join(names, ", ")));
}

std::vector<std::string_view> collective_names() {
  std::vector<std::string_view> names;
  for (Collective const collective : collectives) names.push_back(to_string(collective));
  return names;
}

/// Of strategies alone.
std::vector<GivenFlag> flags_of_strategies(ExplainArguments const& arguments) {
  return {{"--shard-group", arguments.shard_group},
          {"--prefetch", arguments.prefetch},
          {"--unit", arguments.unit},
          {"--schedule", arguments.schedule},
          {"--deck", arguments.deck.path},
          {"--machine", arguments.machine_file},
          {"--trace", arguments.trace_file},
          {"--partition", arguments.partition},
          {"--gradient-reduction", arguments.gradient_reduction},
          {"--granularity", arguments.granularity},
          {"--recipe", arguments.recipe},
          {"--layers", arguments.layers}};
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
  auto const grid = parse_product_grid(arguments.grid.empty() ? "auto" : arguments.grid);
  if (grid) {
    require_not_given({{"--ranks", arguments.ranks}, {"--sequence", arguments.sequence ? "given" : ""}},
                      "tensor --grid");
    TRAINSTONE_REQUIRE_INPUT(grid->z == 1 && Index{grid->x} * grid->y <= most_explained_ranks,
                             "--grid {}: tensor ranks are x times y, 1 to {} ranks, and z is 1", arguments.grid,
                             most_explained_ranks);
    Rank const all = grid->x * grid->y;
    PositionsOfRanks const on_all = PositionsOfRanks::all;
    fmt::print("{}", tensor_text(tensor_ranks(small_model_of(all, on_all, grid->y), all, on_all, grid->y)));
    return 0;
  }
  Rank const ranks = ranks_of(arguments, 1, most_explained_ranks);
  bool const shared = arguments.sequence && ranks > 1;
  PositionsOfRanks const positions = shared ? PositionsOfRanks::shared : PositionsOfRanks::all;
  fmt::print("{}", tensor_text(tensor_ranks(small_model_of(ranks, positions), ranks, positions)));
  return 0;
}

} // namespace

void describe_explain(CLI::App& command, ExplainArguments& arguments) {
  command
      .add_option("SUBJECT", arguments.subject,
                  fmt::format("a collective (all_reduce, broadcast, ...), a strategy ({}), \"{}\", \"{}\" or \"{}\"",
                              strategy_names(), pipeline_subject, tensor_subject, product_subject))
      ->required();
  command.add_option(
      "ALGORITHM,--algorithm", arguments.algorithm,
      fmt::format("algorithm of the collective: ring, tree, ...; schedule of the pipeline: {}; of matmul: "
                  "{}, default 3d",
                  pipeline_schedule_names(), fmt::join(product_names(), ", ")));
  command.add_option(
      "--grid", arguments.grid,
      "with matmul: ranks as xXyXz, e.g. 2x2x2; default: auto, on 8 ranks; with tensor: a grid, e.g. 2x2x1");
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
  describe_explain_strategy(command, arguments);
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
    require_no_other_flags(
        arguments,
        {{"--ranks", arguments.ranks}, {"--grid", arguments.grid}, {"--sequence", arguments.sequence ? "given" : ""}});
    return explain_pipeline(arguments);
  }
  if (arguments.subject == product_subject) {
    PipelineArguments others = arguments.pipeline; // --json is of both
    others.json = false;
    require_not_given({pipeline_flag_given(others)}, arguments.subject);
    require_no_other_flags(arguments,
                           {{"--sequence", arguments.sequence ? "given" : ""}, {"--svg", arguments.svg_file}});
    return explain_product(arguments);
  }
  require_not_given({pipeline_flag_given(arguments.pipeline)}, arguments.subject);
  if (arguments.subject == tensor_subject) return explain_tensor(arguments);
  require_not_given({{"--grid", arguments.grid}}, arguments.subject);
  require_not_given({{"--sequence", arguments.sequence ? "given" : ""}}, arguments.subject);
  if (NamedStrategy const* const strategy = find_strategy(arguments.subject))
    return explain_strategy(arguments, *strategy);
  require_not_given(flags_of_strategies(arguments), arguments.subject);
  std::vector<std::string_view> const known = collective_names();
  TRAINSTONE_REQUIRE_INPUT(std::ranges::find(known, arguments.subject) != known.end(),
                           "\"{}\" is no collective and no strategy, must be one of {}; or {}; or {}, {} or {}",
                           arguments.subject, fmt::join(known, ", "), strategy_names(), pipeline_subject,
                           tensor_subject, product_subject);
  Problem const problem = problem_of(arguments);
  Algorithm const algorithm = algorithm_of(problem.collective, arguments.algorithm);
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
