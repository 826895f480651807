// The flags of commbench and calibrate: from text to checked options. Part of commbench.hpp.

#include "commbench.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/execution/buffers.hpp"
#include "comm/measurement/nccl_collective.hpp"
#include "comm/schedule/topology.hpp"
#include "deck/size_argument.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <ranges>
#include <string_view>

namespace trainstone {

namespace {

constexpr std::uint64_t largest_size = std::uint64_t{1} << 40;
constexpr Rank most_ranks = 1 << 20;

/// nccl-tests' names.
struct TypeName {
  std::string_view name;
  ElementType type;
};
constexpr std::array type_names{
    TypeName{"float", ElementType::float32}, TypeName{"double", ElementType::float64},
    TypeName{"int32", ElementType::int32},   TypeName{"int64", ElementType::int64},
    TypeName{"half", ElementType::float16},  TypeName{"bfloat16", ElementType::bfloat16},
};

std::vector<std::string> split(std::string const& text, char separator) {
  std::vector<std::string> parts;
  for (auto const part : text | std::views::split(separator)) parts.emplace_back(part.begin(), part.end());
  return parts;
}

std::vector<ElementType> parse_types(std::string const& text) {
  std::vector<ElementType> types;
  for (std::string const& name : split(text, ',')) {
    auto const found = std::ranges::find(type_names, name, &TypeName::name);
    if (found != type_names.end()) types.push_back(found->type);
    if (name == "all")
      for (TypeName const& one : type_names) types.push_back(one.type);
    TRAINSTONE_REQUIRE_INPUT(found != type_names.end() || name == "all",
                             "-d: there is no type \"{}\"; there is: {}, all", name,
                             fmt::join(type_names | std::views::transform(&TypeName::name), ", "));
  }
  return types;
}

Operation parse_operation(std::string const& text) {
  for (Operation const operation : {Operation::sum, Operation::max, Operation::min})
    if (to_string(operation) == text) return operation;
  throw InputError(fmt::format("-o: there is no operation \"{}\"; there is: sum, max, min", text));
}

/// Of the flag, or all that have an algorithm; parameter servers need a second rank.
std::vector<Collective> parse_collectives(std::string const& text, Rank ranks) {
  std::vector<Collective> chosen;
  if (text.empty()) {
    for (Collective const collective : collectives)
      if (!algorithms_of(collective).empty() && (ranks > 1 || !has_servers(collective))) chosen.push_back(collective);
    return chosen;
  }
  for (std::string const& name : split(text, ',')) {
    chosen.push_back(parse_collective(name));
    TRAINSTONE_REQUIRE_INPUT(ranks > 1 || !has_servers(chosen.back()),
                             "--collectives: {} needs at least 2 ranks, a worker and a server; this is 1", name);
  }
  return chosen;
}

/// Each must be an algorithm of one of the collectives, or one of the further words.
std::vector<std::string> parse_algorithms(std::string const& text, std::vector<Collective> const& chosen,
                                          std::vector<std::string> const& further) {
  if (text.empty()) return {};
  std::vector<std::string> legal;
  for (Collective const collective : chosen) {
    for (Algorithm const algorithm : algorithms_of(collective)) {
      std::string const name(to_string(algorithm));
      if (std::ranges::find(legal, name) == legal.end()) legal.push_back(name);
    }
  }
  legal.insert(legal.end(), further.begin(), further.end());
  std::vector<std::string> names = split(text, ',');
  for (std::string const& name : names) {
    TRAINSTONE_REQUIRE_INPUT(std::ranges::find(legal, name) != legal.end(),
                             "--algorithms: no algorithm \"{}\" of {}; there is: {}", name,
                             fmt::join(chosen | std::views::transform([](Collective c) { return to_string(c); }), ", "),
                             fmt::join(legal, ", "));
  }
  return names;
}

std::vector<std::uint64_t> parse_sizes(CommbenchArguments const& arguments, std::size_t largest_element) {
  std::uint64_t const from = parse_size("-b", arguments.min_bytes);
  std::uint64_t const to = parse_size("-e", arguments.max_bytes);
  TRAINSTONE_REQUIRE_INPUT(from <= to, "-e {} is below -b {}; it must be at least as large", arguments.max_bytes,
                           arguments.min_bytes);
  TRAINSTONE_REQUIRE_INPUT(from >= largest_element, "-b {} is less than one element of {} bytes", arguments.min_bytes,
                           largest_element);
  std::uint64_t const step = arguments.step_bytes.empty() ? 0 : parse_size("-i", arguments.step_bytes);
  auto const factor = static_cast<std::uint64_t>(parse_count("-f", arguments.step_factor, 2, 1 << 30));
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = from; size <= to; size = step > 0 ? size + step : size * factor) sizes.push_back(size);
  return sizes;
}

Rank parse_rank(std::string const& flag, std::string const& text, Rank ranks) {
  return static_cast<Rank>(parse_count(flag, text, 0, ranks - 1));
}

Rank parse_servers(std::string const& text, std::vector<Collective> const& chosen, Rank ranks) {
  Rank const most = std::ranges::any_of(chosen, has_servers) ? ranks - 1 : most_ranks;
  return static_cast<Rank>(parse_count("--servers", text, 1, most));
}

BuffersChoice parse_buffers(std::string const& text, Topology const& topology, DeviceFindings const& found) {
  BuffersChoice const choice = choose_measured_buffers(text, host_reaches_memory, found);
  if (!choice.shared_memory || topology.nodes() == 1) return choice;
  TRAINSTONE_REQUIRE_INPUT(text.empty() || choice.name != "shared",
                           "--buffers {}: these ranks are on {} nodes, which share no memory; use private", text,
                           topology.nodes());
  return own_buffers(choice.messages);
}

} // namespace

std::uint64_t parse_size(std::string const& flag, std::string const& text) {
  std::optional<std::uint64_t> const bytes = read_size_argument(text, largest_size);
  TRAINSTONE_REQUIRE_INPUT(bytes.has_value(), "{} {} is {}", flag, text, size_argument_problem(largest_size));
  return *bytes;
}

std::int64_t parse_count(std::string const& flag, std::string const& text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool const legal = error == std::errc() && end == text.data() + text.size() && value >= least && value <= most;
  TRAINSTONE_REQUIRE_INPUT(legal, "{} {} is out of range; it must be {} to {}", flag, text, least, most);
  return value;
}

int emulated_nodes(std::string const& text) {
  return static_cast<int>(parse_count("--emulated-nodes", text, 0, most_ranks));
}

CommbenchOptions check_commbench(CommbenchArguments const& arguments, Topology const& topology,
                                 DeviceFindings const& found) {
  Rank const ranks = topology.ranks();
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  CommbenchOptions options;
  options.types = parse_types(arguments.types);
  options.sizes = parse_sizes(arguments, std::ranges::max(options.types | std::views::transform(size_of)));
  options.operation = parse_operation(arguments.operation);
  options.collectives = parse_collectives(arguments.collectives, ranks);
  std::vector<std::string> further{"auto", "mpi"};
  if (nccl_calls()) further.emplace_back("nccl");
  options.algorithms = parse_algorithms(arguments.algorithms, options.collectives, further);
  options.root = parse_rank("-r", arguments.root, ranks);
  options.servers = parse_servers(arguments.servers, options.collectives, ranks);
  options.buffers = parse_buffers(arguments.buffers, topology, found);
  options.check = parse_count("-c", arguments.check, 0, 1) == 1;
  options.fresh = parse_count("--fresh", arguments.fresh, 0, 1) == 1;
  options.calls = static_cast<int>(parse_count("-n", arguments.calls, 0, most));
  options.warmup_calls = static_cast<int>(parse_count("-w", arguments.warmup_calls, 0, most));
  options.samples = static_cast<int>(parse_count("--samples", arguments.samples, 2, 100000));
  TRAINSTONE_REQUIRE_INPUT(options.samples % 2 == 0, "--samples {} is odd; half of them are measured in reverse order",
                           options.samples);
  options.machine_file = arguments.machine_file;
  options.json_file = arguments.json_file;
  options.check_order = arguments.check_order;
  return options;
}

SimulateOptions check_simulation(CommbenchArguments const& arguments) {
  SimulateOptions options;
  for (std::string const& assignment : split(arguments.simulate, ',')) {
    std::vector<std::string> const sides = split(assignment, '=');
    bool const known = sides.size() == 2 && (sides[0] == "ranks" || sides[0] == "nodes");
    TRAINSTONE_REQUIRE_INPUT(known, "--simulate {}: must be ranks=N or ranks=N,nodes=M", arguments.simulate);
    auto const value = static_cast<int>(parse_count("--simulate " + sides[0], sides[1], 1, most_ranks));
    (sides[0] == "ranks" ? options.ranks : options.nodes) = value;
  }
  TRAINSTONE_REQUIRE_INPUT(options.nodes <= options.ranks, "--simulate {}: {} nodes for {} ranks; at most one per rank",
                           arguments.simulate, options.nodes, options.ranks);
  std::vector<ElementType> const types = parse_types(arguments.types);
  TRAINSTONE_REQUIRE_INPUT(types.size() == 1, "-d {}: --simulate takes one type", arguments.types);
  options.type = types.front();
  options.sizes = parse_sizes(arguments, size_of(options.type));
  options.collectives = parse_collectives(arguments.collectives, options.ranks);
  options.algorithms = parse_algorithms(arguments.algorithms, options.collectives, {});
  options.root = parse_rank("-r", arguments.root, options.ranks);
  options.servers = parse_servers(arguments.servers, options.collectives, options.ranks);
  options.machine_file = arguments.machine_file;
  return options;
}

namespace {

constexpr char const* buffers_help =
    "shared: data lie in the node's shared memory, as in training;\n"
    "private: data lie in each rank's own memory, and only messages are used;\n"
    "staged: data lie in each rank's own memory, and MPI gets copies of the messages in pinned memory;\n"
    "device: data lie in a device's memory, and MPI gets this memory itself;\n"
    "where devices of one node reach each other's memory, which a proof finds out, their data lie in it;\n";

/// Adds flags whose text is looked at later; the last one of several counts.
auto adder(CLI::App& command) {
  return [&command](std::string const& names, std::string& target, std::string const& help) {
    command.add_option(names, target, help)->capture_default_str()->take_last();
  };
}

} // namespace

void describe_commbench(CLI::App& command, CommbenchArguments& arguments) {
  auto const add = adder(command);
  add("-b,--minbytes", arguments.min_bytes, "smallest size of the data on a rank, e.g. 8, 64K, 1MiB, 1.5GB");
  add("-e,--maxbytes", arguments.max_bytes, "largest size");
  add("-i,--stepbytes", arguments.step_bytes, "bytes from one size to the next, instead of -f");
  add("-f,--stepfactor", arguments.step_factor, "factor from one size to the next");
  add("-n,--iters", arguments.calls, "calls per sample; 0: as many as fill the time of a sample");
  add("-w,--warmup_iters", arguments.warmup_calls, "calls before the first sample");
  add("--samples", arguments.samples, "samples of every measured time");
  add("-c,--check", arguments.check, "1: check every result, 0: do not");
  add("--fresh", arguments.fresh,
      "1: each rank writes its data before every call and reads its result after it, as in a training, and collectives "
      "with a root or with servers begin after a barrier; writing, reading and barrier are timed apart and "
      "subtracted;\n"
      "0: the result of one call is the input of the next one, as in nccl-tests");
  add("-d,--datatype", arguments.types, "float, double, int32, int64, half, bfloat16 or all; several with commas");
  add("-o,--op", arguments.operation, "sum, max or min");
  add("-r,--root", arguments.root, "root of broadcast, reduce, gather, scatter and send");
  add("--servers", arguments.servers, "number of parameter servers of server_push and server_pull");
  add("--collectives", arguments.collectives, "all_reduce,...; default: all");
  add("--algorithms", arguments.algorithms,
      "ring,mpi,auto,...; default: all that apply. auto: the fastest of the algorithms with close predictions;\n"
      "mpi: MPI's own collectives; nccl: NCCL's own, in builds that have found it");
  add("--buffers", arguments.buffers,
      std::string(buffers_help) +
          "default: shared on one node, private on several nodes; on devices: device if a proof succeeds, else staged");
  add("--emulated-nodes", arguments.emulated_nodes,
      "treat the ranks as if they sat on this number of nodes; 0: real nodes");
  add("--machine", arguments.machine_file, "peaks.json of calibrate; default: a short calibration at the start");
  add("--json", arguments.json_file, "file for all results");
  add("--simulate", arguments.simulate, "ranks=N[,nodes=M]: price every algorithm on a modelled machine, run nothing");
  command.add_flag("--check-order", arguments.check_order,
                   "compare every call between all ranks; the output says so, because the comparison takes time");
}

void describe_calibrate(CLI::App& command, CalibrateArguments& arguments) {
  auto const add = adder(command);
  add("--out", arguments.output, "file for the fitted machine");
  add("--buffers", arguments.buffers,
      std::string(buffers_help) + "default: shared; on devices: device if a proof succeeds, else staged");
  add("-e,--maxbytes", arguments.max_bytes, "largest message");
  add("--emulated-nodes", arguments.emulated_nodes,
      "treat the ranks as if they sat on this number of nodes; 0: real nodes");
  command.add_flag("--all-sizes", arguments.all_sizes, "print the time of every size and the error of the fit");
  CLI::Option* const deck =
      command.add_option("--deck", arguments.deck.path,
                         "DECK: measure what the parts of its model take, so that estimate predicts a step");
  command.add_option("--set", arguments.deck.overrides, "override a key of the deck: section.key=value")
      ->take_all()
      ->allow_extra_args(false)
      ->needs(deck);
}

} // namespace trainstone
