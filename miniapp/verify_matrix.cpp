// trainstone verify --matrix: the same bits for every strategy on the ranks of this run.

#include "commands.hpp"

#include "kernels/gemm/gemm_shape.hpp"
#include "result/result.hpp"
#include "train/verification/equivalence_matrix.hpp"
#include "train/verification/mesh_matrix.hpp"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

namespace trainstone {

int verify_matrix(VerifyOptions const& options, RankContext& context) {
  Communicator& communicator = context.communicator;
  Rank const ranks = communicator.size();
  RunConfig choices;
  collectively(communicator, [&] {
    choices = read_choices(options.common.deck, "");
    resolve_gemm_provider(parse_gemm_provider(choices.kernels.gemm));
    std::int64_t const chunks = choices.model_options.loss_chunks;
    std::int64_t const in_batch = matrix_rows_of(choices.parallel), slices = choices.parallel.slices();
    TRAINSTONE_REQUIRE_INPUT(in_batch % chunks == 0,
                             "memory.loss_chunks = {} does not divide the matrix' {} rows; nearest legal values: {}",
                             chunks, in_batch, nearest_divisors(in_batch, chunks));
    TRAINSTONE_REQUIRE_INPUT(slices == 1 || slices == 2 || slices == 4 || slices == 8,
                             "parallel.tensor_blocks = {}: the model of the matrix has 1, 2, 4 or 8 slices", slices);
    TRAINSTONE_REQUIRE_INPUT(ranks == 1 || ranks == 2 || ranks == 4 || ranks == 8,
                             "verify --matrix runs on 1, 2, 4 or 8 ranks, not on {}", ranks);
  });
  use_chosen_buffers(communicator, choices.comm.buffers, context.exec);
  bool const first = communicator.rank() == 0;
  if (first)
    fmt::print("Kokkos {}, buffers {}, {} threads per rank, gemm {}, loss chunks {}, slices {}, {}\n",
               kokkos_description(), describe_buffers(communicator), context.exec.concurrency(),
               to_string(resolve_gemm_provider(parse_gemm_provider(choices.kernels.gemm))),
               choices.model_options.loss_chunks, choices.parallel.slices(), describe_machine().cpu);
  std::int64_t const all_steps = options.mesh ? 5 : 20, quick_steps = options.mesh ? 3 : 5;
  std::int64_t const steps = options.quick ? quick_steps : all_steps;
  std::map<std::pair<std::int64_t, RecipeName>, std::uint64_t> expected; // by micro-batches and recipe
  std::int64_t rows = 0, different = 0;
  auto const list = options.mesh ? mesh_matrix : equivalence_matrix;
  GptOptions of_rows = choices.model_options;
  of_rows.slices.blocks = choices.parallel.slices();
  for (MatrixRow const& row : list(ranks, options.quick, communicator.reaches_neighbours(), of_rows)) {
    std::optional<std::uint64_t> const hash = run_matrix_row(context.exec, communicator, row, choices, steps);
    bool const same = hash && expected.emplace(std::pair(row.micro_batches, row.recipe), *hash).first->second == *hash;
    ++rows;
    if (!same) ++different;
    std::string const text = hash ? fmt::format("{:016x}", *hash) : "ranks disagree";
    if (first) fmt::print("{} {} {}\n", describe(row, ranks), text, same ? "same" : "DIFFERENT");
  }
  if (first)
    fmt::print("VERIFICATION {}: {} configurations after {} steps, {} different\n",
               different == 0 ? "PASSED" : "FAILED", rows, steps, different);
  return static_cast<int>(different == 0 ? ExitCode::valid : ExitCode::verification_failed);
}

} // namespace trainstone
