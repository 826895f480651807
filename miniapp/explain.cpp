// trainstone explain: what every rank holds after every round of a collective, as text and as a picture.

#include "explain.hpp"

#include "comm/registry.hpp"
#include "comm/simulation/explanation.hpp"
#include "commbench.hpp"
#include "report/atomic_file.hpp"
#include "report/explanation_svg.hpp"
#include "report/explanation_text.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace trainstone {

namespace {

// more than this nobody reads
constexpr std::int64_t most_ranks = 64;
constexpr std::int64_t most_elements = std::int64_t{1} << 20;

/// The value of a flag that only some collectives have; `otherwise` if it is not given.
std::int64_t count_if_given(std::string const& flag, std::string const& text, bool allowed, Collective collective,
                            std::int64_t least, std::int64_t most, std::int64_t otherwise) {
  if (text.empty()) return otherwise;
  TRAINSTONE_REQUIRE_INPUT(allowed, "{}: {} has none, leave it out", flag, to_string(collective));
  return parse_count(flag, text, least, most);
}

Problem problem_of(ExplainArguments const& arguments) {
  Collective const collective = parse_collective(arguments.collective);
  bool const served = has_servers(collective);
  auto const ranks = static_cast<Rank>(parse_count("--ranks", arguments.ranks, served ? 2 : 1, most_ranks));
  auto const nodes = static_cast<int>(parse_count("--nodes", arguments.nodes, 1, ranks));
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

} // namespace

void describe_explain(CLI::App& command, ExplainArguments& arguments) {
  command.add_option("COLLECTIVE", arguments.collective, "all_reduce, broadcast, ...")->required();
  command.add_option("ALGORITHM", arguments.algorithm, "ring, tree, ...")->required();
  command.add_option("--ranks", arguments.ranks, "number of ranks")->capture_default_str();
  command.add_option("--nodes", arguments.nodes, "number of nodes that they sit on, in blocks")->capture_default_str();
  command.add_option("--elements", arguments.elements, "elements of data; default two per block");
  command.add_option("--root", arguments.root, "root of broadcast, reduce, gather, scatter; default 0");
  command.add_option("--servers", arguments.servers, "how many of the ranks are parameter servers; default 1");
  command.add_option("--segment", arguments.segment, "elements per message of segmented algorithms; default theirs");
  command.add_flag("--shared", arguments.shared, "buffers in memory that all ranks of a node share");
  command.add_option("--svg", arguments.svg_file, "write a picture, too");
}

int explain(ExplainArguments const& arguments) {
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
