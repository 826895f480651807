// The flags of matmul: from text to checked options. Part of matmul.hpp.

#include "commbench.hpp"
#include "matmul.hpp"
#include "products/plan/exact_matrices.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ranges>

namespace trainstone {

namespace {

constexpr std::int64_t most_extent = ExactMatrices::most_inner;

std::vector<std::string> split(std::string const& text) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  for (auto const part : text | std::views::split(',')) parts.emplace_back(part.begin(), part.end());
  return parts;
}

/// As nccl-tests and commbench name them, and as decks do.
struct TypeName {
  std::string_view name, name_of_decks;
  Storage storage;
};
constexpr std::array type_names{TypeName{"float", "fp32", Storage::fp32}, TypeName{"bfloat16", "bf16", Storage::bf16},
                                TypeName{"half", "fp16", Storage::fp16}};

Storage parse_type(std::string const& text) {
  for (TypeName const& one : type_names)
    if (text == one.name || text == one.name_of_decks) return one.storage;
  throw InputError(fmt::format("--type: products have no type \"{}\"; there is: float or fp32, bfloat16 or bf16, half "
                               "or fp16",
                               text));
}

} // namespace

void describe_matmul(CLI::App& command, MatmulArguments& arguments) {
  command.add_option("M", arguments.m, "rows of A and C")->required();
  command.add_option("N", arguments.n, "columns of B and C")->required();
  command.add_option("K", arguments.k, "columns of A, rows of B")->required();
  auto const add = [&](char const* name, std::string& target, std::string const& help) {
    command.add_option(name, target, help)->capture_default_str()->take_last();
  };
  add("--algorithms", arguments.algorithms,
      fmt::format("{}: some of them; default: all that this number of ranks, or the grid, allows",
                  fmt::join(product_names(), ",")));
  add("--grid", arguments.grid,
      "ranks as x,y,z or xXyXz: x cuts N, y cuts K, z cuts M; auto: each algorithm's grid on which the busiest rank "
      "sends least");
  add("--type", arguments.type, "of A and B: float, bfloat16 or half; C is float");
  add("--gemm", arguments.gemm, "who multiplies the blocks: as kernels.gemm of a deck, but for measured");
  add("--buffers", arguments.buffers, "what MPI is given: as comm.buffers of a deck");
  add("--samples", arguments.samples, "samples of every measured time");
  add("--emulated-nodes", arguments.emulated_nodes,
      "treat the ranks as if they sat on this number of nodes; 0: real nodes");
  add("--machine", arguments.machine_file, "peaks.json of calibrate; default: a short calibration at the start");
  add("--json", arguments.json_file, "file for all results");
}

MatmulOptions check_matmul(MatmulArguments const& arguments, Rank ranks) {
  MatmulOptions options;
  options.size = {parse_count("M", arguments.m, 1, most_extent), parse_count("N", arguments.n, 1, most_extent),
                  parse_count("K", arguments.k, 1, most_extent)};
  options.ways = choose_products(options.size, ranks, split(arguments.algorithms), parse_product_grid(arguments.grid));
  options.inputs = parse_type(arguments.type);
  options.gemm = resolve_gemm_provider(parse_gemm_provider(arguments.gemm));
  options.samples = static_cast<int>(parse_count("--samples", arguments.samples, 2, 100000));
  TRAINSTONE_REQUIRE_INPUT(options.samples % 2 == 0, "--samples {} is odd; half of them are measured in reverse order",
                           options.samples);
  return options;
}

} // namespace trainstone
