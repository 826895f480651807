// trainstone verify: the trainer against a reference from an independent float64 program.

#include "comm/schedule/config.hpp"
#include "commands.hpp"

#include "kernels/gemm/gemm_shape.hpp"
#include "model/llmc/llmc_files.hpp"
#include "train/verification/reference_check.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

void print_row(ReferenceRow const& row) {
  fmt::print("{:<34} {:>12.3e} {:>12.3e} {:>9.1e} {:<8} {}\n", row.name, row.max_absolute, row.max_relative, row.bound,
             row.relative ? "relative" : "absolute", row.passed ? "PASS" : "FAIL");
}

} // namespace

namespace {

bool is_algorithm(std::string const& key) {
  return std::ranges::find(algorithm_keys, key, &AlgorithmKey::name) != algorithm_keys.end();
}

} // namespace

/// All else that a deck can say is in the reference's files, or in the matrix, and refused here.
RunConfig read_choices(DeckInput const& input, std::string const& model_file) {
  LlmcShape const shape = model_file.empty() ? LlmcShape{1, 1, 2, 1, 1, 128} : LlmcModelReader(model_file).shape();
  std::string const text =
      fmt::format("model = {{ layers = {}, heads = {}, channels = {}, context = {}, vocab = {} }}\n"
                  "data = {{ source = \"synthetic\", steps = 10 }}\n"
                  "batch = {{ micro = 1, accumulation = 1 }}\n",
                  shape.layers, shape.heads, shape.channels, shape.context, shape.vocab);
  Deck const deck = parse_deck(text, input);
  for (auto const& [key, origin] : deck.origins) {
    bool const given = origin.kind == Origin::Kind::environment || origin.kind == Origin::Kind::command_line;
    bool const of_both =
        key.starts_with("kernels.") || key == "model.attention" || key == "memory.recompute" || key == "comm.buffers";
    bool const of_matrix =
        of_both || key.starts_with("model.dropout") || key == "memory.loss_chunks" || key == "parallel.tensor_blocks";
    bool const of_reference = of_both || key.starts_with("parallel.") || is_algorithm(key);
    if (given && model_file.empty() && !of_matrix)
      fail_at(deck, key,
              fmt::format("{} is one of the matrix' own; verify --matrix takes only keys of kernels and memory, "
                          "model.attention, model.dropout, parallel.tensor_blocks and comm.buffers",
                          key));
    if (given && !model_file.empty() && !of_reference)
      fail_at(deck, key,
              fmt::format("{} comes from the reference's files; verify takes only keys of kernels and parallel, "
                          "model.attention, memory.recompute, and the algorithms and buffers of comm",
                          key));
  }
  return deck.config;
}

int verify(VerifyOptions const& options, RankContext& context) {
  if (!options.replay.empty()) return verify_replay(options, context);
  if (options.matrix) return verify_matrix(options, context);
  RunConfig choices;
  collectively(context.communicator, [&] {
    choices = read_choices(options.common.deck, options.files.model);
    resolve_gemm_provider(parse_gemm_provider(choices.kernels.gemm));
    check_reference_files(options.files, choices, context.communicator.size());
  });
  require_neighbours_memory(choices,
                            use_chosen_buffers(context.communicator, choices.comm.buffers, context.exec).neighbours);
  std::vector<ReferenceRow> const rows =
      compare_with_reference(context.exec, context.communicator, options.files, choices);

  bool passed = true;
  for (ReferenceRow const& row : rows) passed = passed && row.passed;
  if (context.communicator.rank() == 0) {
    fmt::print("{}, ranks {}, buffers {}, gemm {}, Kokkos {}\n", options.files.model, context.communicator.size(),
               describe_buffers(context.communicator),
               to_string(resolve_gemm_provider(parse_gemm_provider(choices.kernels.gemm))), kokkos_description());
    fmt::print("{:<34} {:>12} {:>12} {:>9}\n", "compared", "max abs", "max rel", "bound");
    for (ReferenceRow const& row : rows) print_row(row);
    fmt::print("VERIFICATION {}\n", passed ? "PASSED" : "FAILED");
  }
  return static_cast<int>(passed ? ExitCode::valid : ExitCode::verification_failed);
}

} // namespace trainstone
